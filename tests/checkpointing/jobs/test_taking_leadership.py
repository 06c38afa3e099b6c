"""A fault at every step of taking leadership, with three contenders. Over a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from checkpointing import main as jobmanager
from checkpointing.ha.job_graphs import HandleJobGraphStore
from checkpointing.ha.job_results import FileJobResultStore, JobResult
from checkpointing.model.status import JobStatus
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.zookeeper

SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "10", "WAYMARK_DRIVERS_ON_SHUTDOWN": "leave"}
SHORT_SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "5"}  # the next leader waits until it has expired
ELECTION_THREADS = ("leader-election", "leader-contender")
REQUESTS = ("children", "commit", "confirm", "create_sequential", "delete", "ensure", "find")
ENDED_JOB = "e" * 32

STEPS = (
    # Joining the election, and winning it.
    "election: find leader/rest_server/connection_info",
    "election: children leader/latch",
    "election: ensure leader/latch",
    "election: create_sequential leader/latch/OWN",
    "election: find leader/latch/OWN",
    "election: confirm leader/latch/OWN",
    # Recovering the last leader's jobs.
    "FileJobResultStore.dirty_results",
    "EndedJobs._discard_checkpoints",
    "EndedJobs._removed.remove",
    "JobArchive._read_all",
    "HandleJobGraphStore.job_ids",
    "Dispatcher._has_ended",
    "Dispatcher._recover",
    "PastJobs._unfinished",
    # Publishing the leader's address.
    "publishing: ensure leader/rest_server",
    "publishing: find leader/rest_server/connection_info",
    "publishing: commit leader/rest_server/connection_info",
)

ERRORS = {"io": OSError(errno.ESTALE, "Stale file handle"), "mistake": RuntimeError("a mistake of ours")}
# Normal runs have one case of each part; `make nightly` runs all cases.
IN_EVERY_RUN = {
    ("election: confirm leader/latch/OWN", "mistake"),
    ("Dispatcher._recover", "io"),
    ("publishing: commit leader/rest_server/connection_info", "mistake"),
}


class Steps:
    """The steps of a job manager that takes leadership. The step `broken` fails once, with `error`."""

    def __init__(self, broken: str | None = None, error: Exception | None = None) -> None:
        self.taken: list[str] = []
        self.broke = threading.Event()
        self._broken = broken
        self._error = error

    def hook(self, target: Any, name: str, describe: Callable[..., str | None]) -> None:
        """Record calls of `target.name` as steps. Calls for which `describe` returns None are not steps."""
        original = getattr(target, name)

        @functools.wraps(original)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            step = describe(*args)
            if step is not None:
                self.take(step)
            return original(*args, **kwargs)

        setattr(target, name, hooked)

    def take(self, step: str) -> None:
        if step not in self.taken:
            self.taken.append(step)
        if step == self._broken and self._error is not None and not self.broke.is_set():
            self.broke.set()
            raise self._error


def _request_of_the_election(election: Any, operation: str, what: Any, *_: Any) -> str | None:
    """Describe a request of the election. Renewals are no steps, because either of two threads may publish first."""
    if threading.current_thread().name not in ELECTION_THREADS:
        return None
    path = re.sub(r"_c_.*", "OWN", what if isinstance(what, str) else what[-1].path)
    if election._information is None:
        return f"election: {operation} {path}"
    return f"publishing: {operation} {path}" if path.startswith("leader/rest_server") else None


def _work_of_the_recovery(work: Any, *_: Any) -> str | None:
    task = asyncio.current_task()
    if task is None or not any(name in str(task.get_coro()) for name in ("take_leadership", "now_or_later")):
        return None
    return str(getattr(work, "func", work).__qualname__).removesuffix(".<locals>.<lambda>").replace(".<locals>", "")


def _hook_all_threads(steps: Steps, services: Any) -> None:
    """Record the steps in the job manager's threads and in each job's threads."""
    steps.hook(services.io, "_call", _work_of_the_recovery)
    of = services.io_threads.of

    def hooked_of(owner: str) -> Any:
        executor = of(owner)
        if "_call" not in vars(executor):
            steps.hook(executor, "_call", _work_of_the_recovery)
        return executor

    services.io_threads.of = hooked_of


@pytest.fixture
def proxy(zookeeper_hosts: str) -> Iterator[TcpProxy]:
    """Yield the first contender's proxy to ZooKeeper, which is cut when the contender's process ends."""
    proxy = TcpProxy(zookeeper_hosts)
    yield proxy
    proxy.close()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch, proxy: TcpProxy) -> Callable[[Steps], None]:
    """Return a function that records the steps of the job manager behind `proxy`."""

    def install(steps: Steps) -> None:
        make_services, make_dispatcher = jobmanager.make_services, jobmanager.Dispatcher

        def services(settings: Any, load: Any) -> Any:
            made: Any = make_services(settings, load)
            if settings.hosts == proxy.address:
                for name in REQUESTS:
                    describe = functools.partial(_request_of_the_election, made.leader_election, name)
                    steps.hook(made._connection, name, describe)
            return made

        def dispatcher(job_services: Any, describe: Any) -> Any:
            if job_services.settings.zookeeper_hosts == proxy.address:
                _hook_all_threads(steps, job_services)
            return make_dispatcher(job_services, describe)

        monkeypatch.setattr(jobmanager, "make_services", services)
        monkeypatch.setattr(jobmanager, "Dispatcher", dispatcher)

    return install


@contextlib.asynccontextmanager
async def three_contenders(
    cluster: Cluster, proxy: TcpProxy, **environ: str
) -> AsyncIterator[tuple[str, list[RunningJobManager]]]:
    """End the leader while one job runs, another has ended, and the clean-up of a third is not finished.

    The next leader is the first contender.
    """
    async with contextlib.AsyncExitStack() as stack:
        old = await stack.enter_async_context(cluster.job_manager(**SESSION))
        await leads(old)
        job_id = await old.submit_running()
        ended = await old.submit_running()
        await old.cancel(ended)
        await old.until(ended, "CANCELED")
        results = FileJobResultStore(old.settings.state_directory / "ha" / "job-result-store")
        results.create_dirty_result(JobResult(ENDED_JOB, "ended", JobStatus.FAILED, 1, 2))
        contenders = []
        for hosts, session in ((proxy.address, SHORT_SESSION), (cluster.hosts, {}), (cluster.hosts, {})):
            names = {"ZOOKEEPER_HOSTS": hosts, "WAYMARK_ZOOKEEPER_ROOT": cluster.root}
            settings = {**SESSION, **session, **environ, **names}
            contender = RunningJobManager(cluster.directory, cluster.launcher, settings)
            contenders.append(contender)
            stack.push_async_callback(contender.shut_down)
        contenders[0].end_process = lambda _: proxy.cut()
        for contender in contenders:
            await contender.start()
        await old.shut_down()
        yield job_id, contenders


async def the_one_that_leads(cluster: Cluster, contenders: list[RunningJobManager]) -> RunningJobManager:
    """Wait for a leader that is published in ZooKeeper and serves requests, and return it."""
    ha = await asyncio.to_thread(cluster.stores)

    async def leader() -> RunningJobManager | None:
        found = await asyncio.to_thread(ha.leader_retrieval.current)
        for contender in contenders:
            if found is not None and contender.address == found.address:
                with contextlib.suppress(RequestRefused):
                    await contender.get("/overview")
                    return contender
        return None

    try:
        return await eventually(leader)  # type: ignore[no-any-return]
    finally:
        await asyncio.to_thread(ha.close)


async def runs(manager: RunningJobManager, job_id: str) -> bool:
    """Return whether the job runs. It does not while it is not recovered."""
    with contextlib.suppress(RequestRefused):
        return await manager.status(job_id) == "RUNNING"
    return False


async def test_every_step_of_taking_leadership_is_known(
    cluster: Cluster, proxy: TcpProxy, hook: Callable[[Steps], None]
) -> None:
    steps = Steps()
    hook(steps)
    async with three_contenders(cluster, proxy, WAYMARK_ZOOKEEPER_SESSION_TIMEOUT="30") as (_, contenders):
        assert await the_one_that_leads(cluster, contenders) is contenders[0]
        assert steps.taken.index("publishing: commit leader/rest_server/connection_info") == len(steps.taken) - 1
        assert sorted(steps.taken) == sorted(STEPS)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        pytest.param(
            *(step, error), id=f"{step}-{name}", marks=[] if (step, name) in IN_EVERY_RUN else pytest.mark.nightly
        )
        for step, (name, error) in itertools.product(STEPS, ERRORS.items())
    ],
)
async def test_leader_exists_and_job_continues_after_any_failure_of_a_takeover(
    cluster: Cluster, proxy: TcpProxy, hook: Callable[[Steps], None], step: str, error: Exception
) -> None:
    steps = Steps(step, error)
    hook(steps)
    async with three_contenders(cluster, proxy) as (job_id, contenders):
        await eventually(steps.broke.is_set)
        leader = await the_one_that_leads(cluster, contenders)
        cluster.drivers_find(leader)
        await eventually(lambda: runs(leader, job_id))
        driver = cluster.launcher.drivers[0]
        assert driver.refusals == []
        assert driver.registrations > 1, "it was adopted"
        assert len(cluster.launcher.drivers) == 2


async def test_an_error_in_the_recovery_of_one_job_affects_neither_the_leader_nor_other_jobs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.job_manager(**SESSION) as first:
        await leads(first)
        broken, other = await first.submit_running(), await first.submit_running()
    recover = HandleJobGraphStore.recover

    def fail(store: HandleJobGraphStore, job_id: str) -> Any:
        if job_id == broken:
            raise RuntimeError("a mistake of ours")
        return recover(store, job_id)

    monkeypatch.setattr(HandleJobGraphStore, "recover", fail)
    async with cluster.job_manager(**SESSION) as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(other, "RUNNING")
        with pytest.raises(RequestRefused) as refusal:
            await second.status(broken)
        assert refusal.value.status == 503

        monkeypatch.setattr(HandleJobGraphStore, "recover", recover)
        await eventually(lambda: runs(second, broken))
        assert [driver.refusals for driver in cluster.launcher.drivers] == [[], []]


async def test_a_job_manager_whose_rest_server_ends_cannot_lead_and_ends_its_process(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks, ended = asyncio.Event(), asyncio.Event()

    async def main_loop(_: Any) -> None:
        await breaks.wait()
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(jobmanager._Server, "main_loop", main_loop)
    environ = {**SESSION, "ZOOKEEPER_HOSTS": cluster.hosts, "WAYMARK_ZOOKEEPER_ROOT": cluster.root}
    manager = RunningJobManager(cluster.directory, cluster.launcher, environ)
    manager.end_process = lambda _: ended.set()
    await manager.start()
    await leads(manager)
    assert not ended.is_set()

    breaks.set()

    await asyncio.wait_for(ended.wait(), 30)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        await manager.shut_down()
