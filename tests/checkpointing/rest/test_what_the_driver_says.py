"""A driver's reports about its queries, as the REST API shows them."""

from __future__ import annotations

from checkpointing.model.messages import DelayCheckpoint, DriverState, StatusUpdate
from tests.checkpointing.jobs.fake_driver import VERTICES, FakeDriver
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

STUCK = "Query 'wordcount' has not come to the end of batch 7; Spark says: Processing new data."


async def test_a_job_whose_queries_rule_out_exactly_once_shows_as_at_least_once(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    await _say_running(driver, at_least_once=True)

    async def mode() -> bool:
        return bool((await manager.get(f"/jobs/{job_id}/checkpoints/config"))["mode"] == "at_least_once")

    await eventually(mode)


async def test_a_pending_checkpoint_shows_what_it_waits_for(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.acknowledges = False
    await manager.post(f"/jobs/{job_id}/checkpoints")
    await eventually(lambda: driver.triggers)
    await driver.send(DelayCheckpoint(driver.session_id, job_id, 1, driver.triggers[0].checkpoint_id, STUCK))

    async def waits() -> bool:
        newest = (await manager.get(f"/jobs/{job_id}/checkpoints"))["history"][0]
        return bool(newest.get("waiting_for") == STUCK)

    await eventually(waits)


async def _say_running(driver: FakeDriver, *, at_least_once: bool) -> None:
    spec = driver.spec
    await driver.send(
        StatusUpdate(
            driver.session_id, spec.job_id, spec.attempt, DriverState.RUNNING, VERTICES, at_least_once=at_least_once
        )
    )
