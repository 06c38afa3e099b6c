"""A stop-with-savepoint and a change of the parallelism exclude each other, and neither ends the job by mistake."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from checkpointing.jobs.rescale import JobRescale
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import FinishCause
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import FakeDriver
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.checkpointing.jobs.test_rescale import body, exception_names, put

RETAIN = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
TOLERANT = {**RETAIN, "execution.checkpointing.tolerable-failed-checkpoints": "5"}


def checkpoint_of(manager: RunningJobManager, job_id: str, number: int) -> Path:
    return Path(manager.settings.checkpoint_directory, job_id, f"chk-{number}", "_metadata")


async def stopped_for_a_rescale(manager: RunningJobManager, job_id: str) -> FakeDriver:
    """Request a rescale, and return the job's driver, which was stopped for it but has not ended."""
    driver = await manager.driver(1)
    driver.obeys_stop = False
    await put(manager, job_id, body(4))
    await eventually(lambda: driver.stops)
    return driver


async def with_a_postponed_rescale(manager: RunningJobManager, job_id: str) -> FakeDriver:
    """Postpone a rescale by a declined checkpoint, and return the driver. The next checkpoint begins the rescale."""
    driver = await manager.driver(1)
    driver.decline_reason = "CHECKPOINT_DECLINED"
    await put(manager, job_id, body(4))

    async def postponed() -> bool:
        return bool(await exception_names(manager, job_id))

    await eventually(postponed)
    driver.decline_reason = None
    return driver


async def test_a_stop_during_a_rescale_is_refused_and_the_job_keeps_its_checkpoints(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(RETAIN)
    driver = await stopped_for_a_rescale(manager, job_id)
    driver.acknowledges = False
    trigger = (await manager.post(f"/jobs/{job_id}/stop"))["request-id"]
    await eventually(lambda: len(driver.triggers) == 2 or _is_refused(manager, job_id, trigger))

    await driver.finish(FinishCause.FOR_RESCALE)

    result = await manager.operation(f"/jobs/{job_id}/savepoints/{trigger}")
    assert "A change of the parallelism is in progress." in result["failure-cause"]["stack-trace"]
    second = await manager.driver(2)
    await manager.until(job_id, "RUNNING")
    assert second.spec.parallelism == 4
    assert checkpoint_of(manager, job_id, 1).is_file()


async def _is_refused(manager: RunningJobManager, job_id: str, trigger: str) -> bool:
    answer = await manager.get(f"/jobs/{job_id}/savepoints/{trigger}")
    return bool(answer["status"]["id"] == "COMPLETED")


async def test_a_rescale_during_a_stop_is_refused(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RETAIN)
    driver = await manager.driver(1)
    driver.acknowledges = False
    await manager.post(f"/jobs/{job_id}/stop")
    await eventually(lambda: driver.triggers)

    with pytest.raises(RequestRefused, match="A stop-with-savepoint is in progress"):
        await put(manager, job_id, body(4))


async def test_a_rescale_that_is_stored_while_a_stop_begins_waits_for_the_stop(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop begins after the rescale request is checked and before its requirements are stored."""
    job_id = await manager.submit_running(RETAIN)
    driver = await manager.driver(1)
    driver.acknowledges = False
    storing, stored = asyncio.Event(), asyncio.Event()
    store = JobRescale._store

    async def slow_store(rescale: JobRescale, graph: JobGraph) -> None:
        storing.set()
        await stored.wait()
        await store(rescale, graph)

    monkeypatch.setattr(JobRescale, "_store", slow_store)
    change = asyncio.create_task(put(manager, job_id, body(4)))
    await storing.wait()
    await manager.post(f"/jobs/{job_id}/stop")
    await eventually(lambda: driver.triggers)
    stored.set()
    await change

    assert [trigger.kind.value for trigger in driver.triggers] == ["SYNC_SAVEPOINT"]
    await driver.finish()
    await manager.until(job_id, "FINISHED")
    assert len(manager.launcher.drivers) == 1


async def test_a_failed_stop_leaves_a_postponed_change_to_the_next_checkpoint(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(TOLERANT)
    driver = await with_a_postponed_rescale(manager, job_id)
    driver.decline_reason = "CHECKPOINT_DECLINED"
    assert "failure-cause" in await manager.savepoint(job_id, "stop")
    driver.decline_reason = None

    await manager.checkpoint(job_id)

    assert (await manager.driver(2)).spec.parallelism == 4


async def test_a_driver_that_finishes_by_itself_ends_the_job_even_with_a_pending_rescale(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(TOLERANT)
    driver = await with_a_postponed_rescale(manager, job_id)

    await driver.finish()

    await manager.until(job_id, "FINISHED")
    assert len(manager.launcher.drivers) == 1


async def test_the_report_of_the_driver_decides_between_its_end_and_a_rescale(manager: RunningJobManager) -> None:
    """The driver read all its input before it received the stop message."""
    job_id = await manager.submit_running(RETAIN)
    driver = await stopped_for_a_rescale(manager, job_id)

    await driver.finish(FinishCause.BY_ITSELF)

    await manager.until(job_id, "FINISHED")
    assert checkpoint_of(manager, job_id, 1).is_file()


@pytest.mark.zookeeper
async def test_a_stop_whose_leader_died_ends_the_job_even_with_a_pending_rescale(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(TOLERANT)
        driver = await with_a_postponed_rescale(first, job_id)
        driver.obeys_stop = False
        await first.post(f"/jobs/{job_id}/stop")
        await eventually(lambda: driver.stops)
    driver.acknowledges = False
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")
        await eventually(lambda: driver.registrations == 2)

        await driver.finish(driver.stops[0].cause)

        await second.until(job_id, "FINISHED")
        assert len(cluster.launcher.drivers) == 1


@pytest.mark.zookeeper
async def test_a_rescale_whose_leader_died_restarts_the_job_without_a_pending_operation(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(TOLERANT, parallelism=2)
        driver = await stopped_for_a_rescale(first, job_id)
    driver.decline_reason = "CHECKPOINT_DECLINED_TASK_NOT_READY"
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")
        await eventually(lambda: driver.registrations == 2)

        async def postponed() -> bool:
            return "RescalePostponed" in await exception_names(second, job_id)

        await eventually(postponed)
        await put(second, job_id, body(2))
        await driver.finish(driver.stops[0].cause)

        again = await second.driver(2)
        await second.until(job_id, "RUNNING")
        assert again.spec.parallelism == 2
