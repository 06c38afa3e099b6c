"""A leader whose term has ended without its knowledge. Another one leads, but clients still reach the old one.

Every act of the old leader is refused. It is connected to the real ZooKeeper again by then, so the reason is the end of
its term, and not a missing connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import aiohttp
import pytest
import websockets
from starlette.applications import Starlette

from checkpointing import main as jobmanager
from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.ha.errors import LeadershipLost
from checkpointing.ha.job_results import JobResult
from checkpointing.jobs.attempt import AttemptEnd
from checkpointing.jobs.attempts import JobDirectory
from checkpointing.jobs.dispatcher import Dispatcher, NotLeading
from checkpointing.jobs.job_master import JobMaster
from checkpointing.jobs.programs import Program
from checkpointing.model.messages import DriverState, Register, StateFile, Stop, encode
from checkpointing.model.status import JobStatus
from checkpointing.rest.app import make_app
from checkpointing.storage.errors import NotOurPool
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import VERTICES, FakeDriver
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.zookeeper

RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms",
           "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}  # fmt: skip
SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "10"}
SHORT_SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "5"}  # the new leader waits until it has expired
# These paths describe the process that answers, and no job.
OF_THE_PROCESS = re.compile(r"/config|/jobmanager/.*")


class LateDispatcher(Dispatcher):
    """A dispatcher that notices the end of its term only when `hears` is set, as if its process were stopped."""

    hears: asyncio.Event
    app: Starlette

    async def give_up_leadership(self, *, end_drivers: bool = False) -> None:
        await self.hears.wait()
        await super().give_up_leadership(end_drivers=end_drivers)


@pytest.fixture
def dispatchers(monkeypatch: pytest.MonkeyPatch) -> list[LateDispatcher]:
    """Return a list that receives the dispatcher of each job manager that the test starts."""
    made: list[LateDispatcher] = []

    def make(*args: object) -> LateDispatcher:
        made.append(LateDispatcher(*args))  # type: ignore[arg-type]
        made[-1].hears = asyncio.Event()
        return made[-1]

    def make_app_of(dispatcher: LateDispatcher, *args: object) -> Starlette:
        dispatcher.app = make_app(dispatcher, *args)  # type: ignore[arg-type]
        return dispatcher.app

    monkeypatch.setattr(jobmanager, "Dispatcher", make)
    monkeypatch.setattr(jobmanager, "make_app", make_app_of)
    return made


@pytest.fixture
def proxy(zookeeper_hosts: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(zookeeper_hosts)
    yield proxy
    proxy.close()


@dataclass
class Deposed:
    old: RunningJobManager
    dispatcher: LateDispatcher
    new: RunningJobManager
    job_id: str

    @property
    def job(self) -> JobMaster:
        """Return the job as the old leader still has it."""
        return self.dispatcher._jobs[self.job_id]

    @property
    def driver(self) -> FakeDriver:
        return self.old.launcher.drivers[0]

    def shared(self) -> dict[str, bytes]:
        """Return the contents of all files that the job managers share, without files of the driver."""
        root = self.old.directory / "state"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    async def unharmed(self) -> None:
        """Assert that the job runs under the new leader with its first driver, and takes checkpoints."""
        assert await self.new.status(self.job_id) == "RUNNING"
        assert not self.driver.process.exited.done()
        newest = (await self.new.get(f"/jobs/{self.job_id}/checkpoints"))["latest"]["completed"]
        assert await self.new.checkpoint(self.job_id) == (newest["id"] + 1 if newest else 2)


@contextlib.asynccontextmanager
async def deposed(
    cluster: Cluster,
    dispatchers: list[LateDispatcher],
    proxy: TcpProxy,
    *,
    driver_follows: bool = True,
    num_jobs: int = 1,
) -> AsyncIterator[Deposed]:
    hosts = {"ZOOKEEPER_HOSTS": proxy.address, "WAYMARK_DRIVERS_ON_SHUTDOWN": "leave"}
    async with cluster.job_manager(**SHORT_SESSION, **hosts) as old:
        try:
            await leads(old)
            job_ids = [await old.submit_running(RESTART) for _ in range(num_jobs)]
            assert await old.checkpoint(job_ids[0]) == 1
            async with cluster.job_manager(**SESSION, WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as new:
                dispatchers[1].hears.set()
                proxy.cut()
                await leads(new)
                proxy.heal()
                if driver_follows:
                    cluster.drivers_find(new)
                    for job_id in job_ids:
                        await new.until(job_id, "RUNNING")
                election = dispatchers[0].services.high_availability.leader_election
                await eventually(lambda: election._latch is not None)  # type: ignore[attr-defined]
                try:
                    yield Deposed(old, dispatchers[0], new, job_ids[0])
                finally:
                    dispatchers[0].hears.set()
        finally:
            dispatchers[0].hears.set()  # otherwise the shutdown would hang and hide the failure


async def test_every_request_is_refused_and_changes_nothing(
    cluster: Cluster, dispatchers: list[LateDispatcher], proxy: TcpProxy
) -> None:
    async with deposed(cluster, dispatchers, proxy) as state:
        before = state.shared()
        answers = {}
        async with aiohttp.ClientSession(state.old.address) as client:
            for method, path in requests_of(state):
                async with client.request(method, path, json={"entryClass": "wordcount.py:wordcount"}) as answer:
                    answers[f"{method} {path}"] = answer.status
        assert len(answers) > 20
        assert {request for request, status in answers.items() if status != 503} == set()
        assert state.shared() == before
        await state.unharmed()


def requests_of(state: Deposed) -> Iterator[tuple[str, str]]:
    """Yield every method and path of the REST API, without those that describe the process."""
    values = {"jobid": state.job_id, "checkpointid": "1", "vertexid": VERTICES[0].id, "jarid": "x.py"}
    for route in state.dispatcher.app.routes:
        path = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "a" * 32), getattr(route, "path", ""))
        for method in sorted(getattr(route, "methods", None) or ()):
            if method != "HEAD" and not OF_THE_PROCESS.fullmatch(path):
                yield method, path


async def test_a_driver_is_refused_and_its_messages_are_ignored(
    cluster: Cluster, dispatchers: list[LateDispatcher], proxy: TcpProxy
) -> None:
    async with deposed(cluster, dispatchers, proxy, driver_follows=False) as state:
        attempt = state.job.record.attempt
        assert attempt is not None
        await eventually(lambda: state.driver.registrations == 1 and state.job._gateway.channel is None)

        url = state.old.address.replace("http://", "ws://") + "/drivers"
        register = Register(state.job_id, 1, state.driver.pid, DriverState.RUNNING, VERTICES, {"wordcount": 4})
        async with websockets.connect(url, proxy=None) as connection:
            await connection.send(encode(register))
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await connection.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013, "it shall look for the leader"
        assert state.driver.registrations == 1
        assert state.driver.refusals == [], "nor is it told to end"
        assert not attempt.ended.done()

        cluster.drivers_find(state.new)
        await state.new.until(state.job_id, "RUNNING")
        await state.unharmed()


async def test_nothing_is_written_removed_sent_or_started(
    cluster: Cluster, dispatchers: list[LateDispatcher], proxy: TcpProxy
) -> None:
    async with deposed(cluster, dispatchers, proxy) as state:
        before, job, services = state.shared(), state.job, state.dispatcher.services
        ha, starter, coordinator = services.high_availability, job._starter, job.checkpoints.coordinator

        with pytest.raises(LeadershipLost):
            await services.io.run(lambda: ha.recovery_factory.create(state.job_id, 1))
        with pytest.raises(LeadershipLost):
            await services.io.run(lambda: ha.job_graphs.put(replace(job.graph, name="other")))
        with pytest.raises(LeadershipLost):
            await services.io.run(lambda: ha.job_graphs.remove(state.job_id))
        with pytest.raises(LeadershipLost):
            await services.io.run(lambda: ha.clean_up(state.job_id))
        with pytest.raises(LeadershipLost):
            await services.io.run(lambda: job.checkpoints.store.add_checkpoint(replace(_newest(job), checkpoint_id=9)))
        with pytest.raises(LeadershipLost):
            await starter.prepare(None)
        with pytest.raises(LeadershipLost):
            await starter.launch(job.record.attempts[0], None)
        with pytest.raises(NotLeading):
            await state.dispatcher.submit(replace(job.graph, job_id="e" * 32), _program(state))
        pool = job.checkpoints._storage
        with pytest.raises(NotOurPool):
            await services.io.run(lambda: pool.discard_shared([StateFile("x", "shared/x", 1, "x", shared=True)]))
        result = JobResult(state.job_id, "wordcount", JobStatus.CANCELED, 1, 2)
        assert not await state.dispatcher._ended_jobs.record(result, job.session_id)
        with pytest.raises(CheckpointException):
            await asyncio.wrap_future(coordinator.trigger_checkpoint())
        sent_by_the_new_one = len(state.driver.triggers)
        job._gateway.channel = job._gateway.channel or _Recorder()  # type: ignore[assignment]
        job._gateway.send(Stop(job.session_id))
        assert getattr(job._gateway.channel, "sent", []) == []
        assert len(state.driver.triggers) == sent_by_the_new_one

        assert {name: state.shared().get(name) for name in before} == before
        await state.unharmed()


class _Recorder:
    def __init__(self) -> None:
        self.sent: list[object] = []

    def send(self, message: object) -> None:
        self.sent.append(message)

    def close(self) -> None:
        """Do nothing: there is no connection."""


def _newest(job: JobMaster):  # type: ignore[no-untyped-def]
    newest = job.checkpoints.store.latest
    assert newest is not None
    return newest


def _program(state: Deposed) -> Program:
    [program] = state.dispatcher.services.programs.list()
    return program


async def test_partitioned_leader_leaves_the_jobs_to_the_new_leader(
    cluster: Cluster, dispatchers: list[LateDispatcher], proxy: TcpProxy
) -> None:
    async with deposed(cluster, dispatchers, proxy, num_jobs=3) as state:
        cancelled, silent, finished = state.dispatcher._jobs.values()
        for job in (cancelled, silent, finished):
            job.driver.disconnected(job._gateway.channel)  # type: ignore[arg-type]
        cancelled.requests.cancel()
        for job, end in ((silent, DriverState.FAILED), (finished, DriverState.FINISHED)):
            assert job.record.attempt is not None
            job.record.attempt.end(AttemptEnd(end, job.record.info("HeartbeatTimeout", "this process was stopped")))

        for job in (cancelled, silent, finished):
            assert await job.wait_ended() is JobStatus.SUSPENDED
            assert not job.left_nothing
            assert not state.dispatcher.services.high_availability.job_results.has_result(job.graph.job_id)
            record = JobDirectory(state.dispatcher.services.jobs_directory, job.graph.job_id).read_record()
            assert record is not None
            assert not record.ended
        for driver in state.old.launcher.drivers:
            assert driver.process.end_calls == 0
        assert len(state.old.launcher.drivers) == 3
        await state.unharmed()


async def test_more_suspended_jobs_than_ended_ones_are_shown_keep_their_directories(
    cluster: Cluster,
) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave", WAYMARK_COMPLETED_JOBS="1") as first:
        await leads(first)
        job_ids = [await first.submit_running(RESTART) for _ in range(3)]
    kept = [JobDirectory(first.settings.state_directory / "jobs", job_id).program().name for job_id in job_ids]
    assert kept == ["wordcount.py"] * 3
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        for job_id in job_ids:
            await second.until(job_id, "RUNNING")
        assert len(cluster.launcher.drivers) == 3
