"""Leadership is lost in the middle of the recovery. The recovery ends there, and the next leader loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing import main as jobmanager
from checkpointing.ha.job_graphs import HandleJobGraphStore
from checkpointing.ha.job_results import FileJobResultStore, JobResult
from checkpointing.ha.leadership import LeaderElection
from checkpointing.ha.services import ZooKeeperServices
from checkpointing.ha.zookeeper import SetData
from checkpointing.jobs.dispatcher import Dispatcher
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.status import JobStatus
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import eventually
from tests.tcp_proxy import TcpProxy

pytestmark = pytest.mark.zookeeper

LIMIT_S = 30
RETAIN = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
          "execution.checkpointing.num-retained": "3"}  # fmt: skip
LEAVE = {"WAYMARK_DRIVERS_ON_SHUTDOWN": "leave"}
SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "10"}
SHORT_SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "5"}  # the next leader waits until it has expired


@pytest.fixture
def proxy(zookeeper_hosts: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(zookeeper_hosts)
    yield proxy
    proxy.close()


@pytest.fixture
def dispatchers(monkeypatch: pytest.MonkeyPatch) -> list[Dispatcher]:
    """Return a list that receives the dispatcher of each job manager that the test starts."""
    made: list[Dispatcher] = []

    def make(*args: Any) -> Dispatcher:
        made.append(Dispatcher(*args))
        return made[-1]

    monkeypatch.setattr(jobmanager, "Dispatcher", make)
    return made


class LossAfter:
    """A wrapper of `read` whose first call returns only when the leadership of `election` is lost."""

    def __init__(self, read: Callable[[str], Any], proxy: TcpProxy, election: Callable[[], LeaderElection]) -> None:
        self.calls: list[str] = []
        self.lost = threading.Event()
        self._read = read
        self._proxy = proxy
        self._election = election

    def __call__(self, name: str) -> Any:
        self.calls.append(name)
        result = self._read(name)
        if len(self.calls) == 1:
            self._proxy.cut()
            self._wait_for_the_loss()
            self.lost.set()
        return result

    def _wait_for_the_loss(self) -> None:
        waited = threading.Event()
        for _ in range(LIMIT_S * 100):
            try:
                if self._election().fence is None:
                    return
            except Exception:  # noqa: BLE001  (the expected LeadershipLost)
                return
            waited.wait(0.01)
        raise AssertionError("the leadership was not lost in time")


def lose_leadership_after(method: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> list[LossAfter]:
    """Let the next job manager lose its leadership after `method` of its job graph store.

    Return a list that receives the loss.
    """
    losses: list[LossAfter] = []
    make_services = jobmanager.make_services

    def make(*args: Any) -> Any:
        services = make_services(*args)
        if not losses:
            losses.append(LossAfter(getattr(services.job_graphs, method), proxy, lambda: services.leader_election))
            setattr(services.job_graphs, method, losses[0])
        return services

    monkeypatch.setattr(jobmanager, "make_services", make)
    return losses


async def test_a_term_lost_before_the_first_job_starts_none_and_the_next_leader_starts_all(
    cluster: Cluster, dispatchers: list[Dispatcher], proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.job_manager(**LEAVE) as first:
        await leads(first)
        job_ids = [await first.submit_running(RETAIN) for _ in range(3)]
        assert await first.checkpoint(job_ids[0]) == 1

    losses = lose_leadership_after("recover", proxy, monkeypatch)
    async with cluster.job_manager(**LEAVE, **SHORT_SESSION, ZOOKEEPER_HOSTS=proxy.address):
        await eventually(lambda: losses and losses[0].lost.is_set())
        async with cluster.job_manager(**SESSION) as third:
            cluster.drivers_find(third)
            await leads(third)
            for job_id in job_ids:
                await third.until(job_id, "RUNNING")
            second = dispatchers[1]
            assert len(losses[0].calls) == 1, "the recovery ended there"
            assert second.jobs == ()
            assert not second.leading
            assert len(cluster.launcher.drivers) == 3, "all were adopted"
            assert await third.checkpoint(job_ids[0]) == 2


async def test_a_job_stored_when_the_term_is_lost_is_started_only_by_the_next_leader(
    cluster: Cluster, dispatchers: list[Dispatcher], proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_leadership_after("put", proxy, monkeypatch)
    async with cluster.job_manager(**SHORT_SESSION, ZOOKEEPER_HOSTS=proxy.address) as first:
        await leads(first)
        with pytest.raises(RequestRefused) as refusal:
            await first.submit()
        assert (refusal.value.status, dispatchers[0].jobs) == (503, ())
        async with cluster.job_manager(**SESSION) as second:
            await leads(second)
            [job] = (await second.get("/jobs/overview"))["jobs"]
            await second.until(job["jid"], "RUNNING")
            assert len(cluster.launcher.drivers) == 1


async def test_a_job_that_cannot_be_stored_is_refused_and_not_started(
    cluster: Cluster, dispatchers: list[Dispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(graphs: HandleJobGraphStore, graph: JobGraph) -> None:
        raise OSError("the storage is away")

    async with cluster.job_manager() as manager:
        await leads(manager)
        with monkeypatch.context() as patch:
            patch.setattr(HandleJobGraphStore, "put", away)
            with pytest.raises(RequestRefused, match="could not be stored: the storage is away"):
                await manager.submit()
        assert (dispatchers[0].jobs, cluster.launcher.drivers) == ((), [])
        await manager.submit_running()


async def test_an_ended_job_is_not_recovered_even_if_its_result_is_read_after_its_graph(
    cluster: Cluster, dispatchers: list[Dispatcher], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The storage was unavailable when the leader first read the job results."""
    async with cluster.job_manager(**LEAVE) as first:
        await leads(first)
        job_id = await first.submit_running(RETAIN)
        results = first.settings.state_directory / "ha" / "job-result-store"
    FileJobResultStore(results).create_dirty_result(JobResult(job_id, "ended", JobStatus.FAILED, 1, 2))
    result, away = results / f"{job_id}_DIRTY.json", cluster.directory / "away"
    result.rename(away)

    def recover(graphs: HandleJobGraphStore, name: str, real: Any = HandleJobGraphStore.recover) -> Any:
        if away.exists():
            away.rename(result)
        return real(graphs, name)

    monkeypatch.setattr(HandleJobGraphStore, "recover", recover)
    async with cluster.job_manager(**LEAVE) as second:
        await leads(second)
        await eventually(lambda: dispatchers[1].jobs or f"job {job_id} has ended and is not recovered" in caplog.text)
        assert dispatchers[1].jobs == ()
        assert len(cluster.launcher.drivers) == 1
    assert not away.exists()


async def test_a_term_lost_while_checkpoints_are_read_locks_and_removes_none(
    cluster: Cluster, dispatchers: list[Dispatcher], proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.job_manager(**LEAVE) as first:
        await leads(first)
        job_id = await first.submit_running(RETAIN)
        assert [await first.checkpoint(job_id) for _ in range(3)] == [1, 2, 3]
        directory = Path(first.settings.checkpoint_directory, job_id)

    read = jobmanager.read_reachable
    loss = LossAfter(read, proxy, lambda: dispatchers[1].services.high_availability.leader_election)
    monkeypatch.setattr(jobmanager, "read_reachable", loss)
    async with cluster.job_manager(**LEAVE, **SHORT_SESSION, ZOOKEEPER_HOSTS=proxy.address) as second:
        cluster.drivers_find(second)
        await eventually(loss.lost.is_set)
        monkeypatch.setattr(jobmanager, "read_reachable", read)
        proxy.heal()
        async with cluster.job_manager(**SESSION):
            # Either of the two job managers may lead now.
            leader = await eventually(lambda: next((d for d in dispatchers[1:] if d.leading), None))
            for driver in cluster.launcher.drivers:
                driver.address = leader.services.address
            await eventually(lambda: [job.status.value for job in leader.jobs] == ["RUNNING"])
            [job] = leader.jobs
            assert [kept.checkpoint_id for kept in job.checkpoints.store.checkpoints] == [1, 2, 3]
            assert await job.requests.trigger_checkpoint(full=False) == 4
            assert [kept.checkpoint_id for kept in job.checkpoints.store.checkpoints] == [2, 3, 4]
            await eventually(lambda: not (directory / "chk-1").exists())
            assert len(cluster.launcher.drivers) == 1


@pytest.mark.parametrize("damage", ["missing", "unreadable"])
async def test_no_id_is_reused_after_any_counter_failure(cluster: Cluster, damage: str) -> None:
    async with cluster.job_manager(**LEAVE) as first:
        await leads(first)
        job_id = await first.submit_running(RETAIN)
        assert [await first.checkpoint(job_id) for _ in range(3)] == [1, 2, 3]
    ha = await asyncio.to_thread(cluster.stores)
    assert isinstance(ha, ZooKeeperServices)
    counter = f"jobs/{job_id}/checkpoint_id_counter"
    if damage == "missing":
        await asyncio.to_thread(ha._connection.delete, counter)
    else:
        await asyncio.to_thread(ha._connection.commit, [SetData(counter, b"?", -1)])

    async with cluster.job_manager(**LEAVE) as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")
        if damage == "unreadable":
            with pytest.raises(KeyError):  # the operation failed
                await second.checkpoint(job_id)
            assert await second.status(job_id) == "RUNNING"
            await asyncio.to_thread(ha._connection.delete, counter)
        assert await second.checkpoint(job_id) == 4
    await asyncio.to_thread(ha.close)
