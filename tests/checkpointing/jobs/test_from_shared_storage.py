"""A job continues from the files that its driver left on another machine.

The job managers share their directory and a ZooKeeper.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.jobs.attempts import JobDirectory
from checkpointing.jobs.local_recovery import FROM_SHARED
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.test_job_manager_failover import RESTART
from tests.checkpointing.jobs.test_local_recovery import came_from_another_boot, exceptions, leave
from tests.checkpointing.jobs.test_one_attempt_at_a_time import claimed, waits_for_the_other

pytestmark = pytest.mark.zookeeper

SHARED = RESTART | {FROM_SHARED: "true"}


async def ran_on_another_machine(cluster: Cluster, configuration: dict[str, str]) -> tuple[str, Path]:
    """Run a job whose machine is lost after a checkpoint and batch 9.

    Return its ID and the query's checkpointLocation.
    """
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(configuration)
        assert await first.checkpoint(job_id) == 1
        directory = JobDirectory(first.settings.state_directory / "jobs", job_id)
    cluster.launcher.drivers[0].kill(-9)
    record = directory.read_record()
    assert record is not None
    directory.write_record(replace(record, host="elsewhere.example"))
    location = leave(Path(record.work_directory), 9, in_flight=True)
    came_from_another_boot(Path(record.work_directory))
    return job_id, location


@asynccontextmanager
async def next_machine(cluster: Cluster) -> AsyncIterator[RunningJobManager]:
    """Yield the next machine's job manager, which waits only a moment for the lost driver."""
    async with cluster.job_manager(WAYMARK_RECONCILE_WINDOW="0.5") as second:
        await leads(second)
        yield second


async def test_another_machine_continues_from_the_last_commits_in_shared_storage(cluster: Cluster) -> None:
    job_id, _ = await ran_on_another_machine(cluster, SHARED)
    async with next_machine(cluster) as second:
        await second.until(job_id, "RUNNING")
        first, spec = cluster.launcher.specs
        assert spec.restore is None
        assert spec.local is not None
        assert (spec.local.work_directory, spec.local.of_any_boot) == (first.work_directory, True)
        assert spec.timeline == first.timeline
        attempt = (await second.get(f"/jobs/{job_id}"))["attempts"][0]
        assert (attempt["restored-from"], attempt["restored-batches"]) == ("local", {"wordcount": 9})


async def continues_from_the_checkpoint(cluster: Cluster, job_id: str) -> list[str]:
    """Wait until the job continues from the checkpoint on the next machine. Return the job's exceptions."""
    async with next_machine(cluster) as second:
        await second.until(job_id, "RUNNING")
        spec = cluster.launcher.specs[-1]
        assert (spec.attempt, spec.local) == (2, None)
        assert spec.restore is not None
        assert spec.restore.checkpoint_id == 1
        return await exceptions(second, job_id)


async def test_a_torn_file_is_reported_and_the_checkpoint_is_used(cluster: Cluster) -> None:
    job_id, location = await ran_on_another_machine(cluster, SHARED)
    (location / "commits" / "9").write_text("v1\n{")
    result = await continues_from_the_checkpoint(cluster, job_id)
    assert any("cannot be used: query 'wordcount': commits/9" in exception for exception in result)


async def test_storage_that_is_not_declared_as_shared_uses_the_checkpoint(cluster: Cluster) -> None:
    job_id, _ = await ran_on_another_machine(cluster, RESTART)
    result = await continues_from_the_checkpoint(cluster, job_id)
    assert not any("LocalStateUnusable" in exception for exception in result)


async def test_local_recovery_waits_for_the_other_machines_claim(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, _ = await ran_on_another_machine(cluster, SHARED)
    async with AsyncExitStack() as stack:
        async with claimed(cluster, job_id, 1):
            second = await stack.enter_async_context(next_machine(cluster))
            await waits_for_the_other(cluster, 1, caplog)
        await second.until(job_id, "RUNNING")
        assert cluster.launcher.specs[-1].local is not None
