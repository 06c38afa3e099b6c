"""The clean-up of a job whose job manager died between its end and the clean-up. Over a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from checkpointing.ha.job_results import JobResult
from checkpointing.ha.services import HighAvailabilityServices
from checkpointing.model.status import JobStatus
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

pytestmark = pytest.mark.zookeeper

RETAIN = "RETAIN_ON_CANCELLATION"
DELETE = "DELETE_ON_CANCELLATION"
NEVER_RETAIN = "NO_EXTERNALIZED_CHECKPOINTS"


class Left:
    """The files and stores of a job whose job manager died right after it recorded the job's end."""

    def __init__(self, job_id: str, directory: Path, ha: HighAvailabilityServices) -> None:
        self.job_id = job_id
        self.directory = directory
        self.ha = ha

    @property
    def num_handles(self) -> int:
        store = self.ha.recovery_factory.create(self.job_id, 1).store
        store.recover()
        return len(store.checkpoints) + len(store.unreadable)

    @property
    def is_clean(self) -> bool:
        return self.ha.job_results.has_clean_result(self.job_id)


@contextlib.asynccontextmanager
async def left_by_the_dead(
    cluster: Cluster, status: JobStatus, retention: str, *, is_saved: bool = True, keep_state: bool = False
) -> AsyncIterator[Left]:
    """Yield a job whose driver has ended.

    The job still has its checkpoint, handle, graph and dirty result.
    """
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        settings = {"execution.checkpointing.externalized-checkpoint-retention": retention}
        job_id = await first.submit_running(settings)
        await first.checkpoint(job_id)
        directory = Path(first.settings.checkpoint_directory, job_id)
    cluster.launcher.drivers[0].kill(-9)
    ha = await asyncio.to_thread(cluster.stores)
    try:
        result = JobResult(job_id, "wordcount", status, 1, 2, is_saved=is_saved, keep_state=keep_state)
        await asyncio.to_thread(ha.job_results.create_dirty_result, result)
        yield Left(job_id, directory, ha)
    finally:
        await asyncio.to_thread(ha.close)


async def in_thread(read: Callable[[], object]) -> object:
    return await asyncio.to_thread(read)


async def no_job_runs(manager: RunningJobManager, cluster: Cluster) -> None:
    assert await manager.get("/jobs") == {"jobs": []}
    assert len(cluster.launcher.drivers) == 1


@pytest.mark.parametrize(
    ("status", "retention", "is_saved", "stays"),
    [
        (JobStatus.CANCELED, DELETE, True, False),
        (JobStatus.CANCELED, RETAIN, True, True),
        (JobStatus.FAILED, DELETE, False, True),
        (JobStatus.FINISHED, RETAIN, True, False),
        (JobStatus.FINISHED, RETAIN, False, True),
    ],
)
async def test_conformance_o01_the_next_leader_finishes_the_clean_up_by_the_status_of_the_job(
    cluster: Cluster, status: JobStatus, retention: str, is_saved: bool, stays: bool
) -> None:
    async with (
        left_by_the_dead(cluster, status, retention, is_saved=is_saved) as left,
        cluster.job_manager() as second,
    ):
        await leads(second)

        await no_job_runs(second, cluster)
        assert left.is_clean
        assert await in_thread(left.ha.job_graphs.job_ids) == []
        assert await in_thread(lambda: left.num_handles) == 0
        assert (left.directory / "chk-1" / "_metadata").exists() == stays
        assert left.directory.exists() == stays


@pytest.mark.parametrize("keep_state", [True, False])
async def test_the_next_leader_keeps_the_checkpoints_of_a_job_that_failed_because_it_could_not_use_them(
    cluster: Cluster, keep_state: bool
) -> None:
    async with (
        left_by_the_dead(cluster, JobStatus.FAILED, NEVER_RETAIN, is_saved=False, keep_state=keep_state) as left,
        cluster.job_manager() as second,
    ):
        await leads(second)

        await no_job_runs(second, cluster)
        assert left.is_clean
        assert await in_thread(lambda: left.num_handles) == 0
        assert (left.directory / "chk-1" / "_metadata").exists() == keep_state


async def test_conformance_o01_the_rest_is_cleaned_up_if_the_graph_is_missing(cluster: Cluster) -> None:
    async with left_by_the_dead(cluster, JobStatus.CANCELED, RETAIN) as left:
        await asyncio.to_thread(left.ha.job_graphs.remove, left.job_id)
        async with cluster.job_manager() as second:
            await leads(second)

            await no_job_runs(second, cluster)
            assert left.is_clean
            assert await in_thread(lambda: left.num_handles) == 0


async def test_conformance_o01_unreadable_checkpoints_are_kept_and_the_rest_is_removed(cluster: Cluster) -> None:
    async with left_by_the_dead(cluster, JobStatus.CANCELED, DELETE) as left:
        (left.directory / "chk-1" / "_metadata").write_text("damaged")
        async with cluster.job_manager() as second:
            await leads(second)

            await no_job_runs(second, cluster)
            assert left.is_clean
            assert await in_thread(left.ha.job_graphs.job_ids) == []
            assert (left.directory / "chk-1").exists()


async def test_an_ended_job_whose_clean_up_fails_is_not_run_again_and_remains_dirty(cluster: Cluster) -> None:
    async with left_by_the_dead(cluster, JobStatus.CANCELED, DELETE) as left:
        results = left.directory.parents[1] / "ha" / "job-result-store"
        # The clean result cannot be written, because a directory has its name.
        (results / f"{left.job_id}.json").mkdir()
        (results / f"{left.job_id}.json" / "in the way").write_text("x")
        async with cluster.job_manager() as second:
            await leads(second)
            await no_job_runs(second, cluster)

        assert (results / f"{left.job_id}_DIRTY.json").exists()
        assert not left.directory.exists()


async def test_a_job_whose_end_cannot_be_recorded_keeps_everything(cluster: Cluster) -> None:
    async with cluster.job_manager() as first:
        await leads(first)
        job_id = await first.submit_running({"execution.checkpointing.externalized-checkpoint-retention": DELETE})
        await first.checkpoint(job_id)
        directory = Path(first.settings.checkpoint_directory, job_id)
        results = first.settings.state_directory / "ha" / "job-result-store"
        if results.exists():
            results.rename(results.with_name("away"))
        results.write_text("a file where the results should go")
        await first.cancel(job_id)
        await first.until(job_id, "CANCELED")

    results.unlink()  # after this, no job manager tries again to record the end
    assert (directory / "chk-1" / "_metadata").exists()
    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "RUNNING")

        restore = cluster.launcher.specs[-1].restore
        assert restore is not None
        assert restore.checkpoint_id == 1
        await eventually(lambda: len(cluster.launcher.drivers) == 2)
