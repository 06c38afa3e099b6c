"""A job's first checkpoint follows its first batch, independent of the interval."""

from __future__ import annotations

from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.checkpointing.jobs.test_job_master import FAST_RESTART

# A job's first periodic checkpoint comes after the minimum pause at the earliest.
SELDOM = {"execution.checkpointing.interval": "2 h", "execution.checkpointing.min-pause": "1 h"}


async def completed(manager: RunningJobManager, job_id: str) -> int:
    return int((await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["completed"])


async def has_batches(manager: RunningJobManager, job_id: str, batches: int) -> bool:
    return bool((await manager.get(f"/jobs/{job_id}"))["queries"][0]["batches"] == batches)


async def has_completed(manager: RunningJobManager, job_id: str, number: int) -> None:
    async def reached() -> bool:
        return await completed(manager, job_id) == number

    await eventually(reached)


async def test_the_first_checkpoint_follows_the_first_batch(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(SELDOM)
    (await manager.driver(1)).batches = 1
    await has_completed(manager, job_id, 1)


async def test_a_job_that_has_a_snapshot_to_restore_keeps_its_interval(manager: RunningJobManager) -> None:
    former = await manager.submit_running(SELDOM)
    savepoint = (await manager.savepoint(former))["location"]
    job_id = await manager.submit_running(SELDOM, savepointPath=savepoint)
    manager.launcher.drivers[-1].batches = 5
    await eventually(lambda: has_batches(manager, job_id, batches=5))
    assert await manager.checkpoint(job_id) == 2
    assert await completed(manager, job_id) == 1


async def test_a_failed_one_is_triggered_again_after_the_next_attempts_first_batch(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(SELDOM | FAST_RESTART)
    first = await manager.driver(1)
    first.decline_reason = "CHECKPOINT_DECLINED"
    first.batches = 1
    await eventually(lambda: first.triggers)
    first.kill(-9)
    (await manager.driver(2)).batches = 1
    await has_completed(manager, job_id, 1)
