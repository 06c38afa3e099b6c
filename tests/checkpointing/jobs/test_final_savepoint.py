# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""A job that ends by itself leaves a savepoint, even if processes die or storage fails meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.jobs import final_savepoint
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import FinishCause
from checkpointing.storage import FileCheckpointStorage, read_metadata
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import FakeDriver
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.checkpointing.jobs.test_savepoints_and_stop import SlowStorage

RETENTION = "execution.checkpointing.externalized-checkpoint-retention"
RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


def savepoints(manager: RunningJobManager) -> list[Path]:
    """Return the directories of the complete savepoints."""
    return sorted(path.parent for path in Path(manager.settings.savepoint_directory).glob("*/_metadata"))


async def end_cause(manager: RunningJobManager, job_id: str) -> str:
    return str((await manager.get(f"/jobs/{job_id}"))["status-history"][-1]["cause"])


async def exceptions(manager: RunningJobManager, job_id: str) -> list[str]:
    entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    return [entry["message"] for entry in entries]


@pytest.mark.parametrize("retention", ["NO_EXTERNALIZED_CHECKPOINTS", "RETAIN_ON_CANCELLATION"])
async def test_a_job_that_ends_by_itself_finishes_with_a_savepoint(manager: RunningJobManager, retention: str) -> None:
    job_id = await manager.submit_running({RETENTION: retention})
    await manager.checkpoint(job_id)
    driver = await manager.driver(1)

    await driver.ends()

    await manager.until(job_id, "FINISHED")
    (savepoint,) = savepoints(manager)
    assert read_metadata(str(savepoint)).batches == {"wordcount": 7}
    assert [stop.cause for stop in driver.stops] == [FinishCause.AFTER_SAVEPOINT]
    assert await end_cause(manager, job_id) == "the driver finished by itself, with final savepoint 2"
    await eventually(lambda: not Path(manager.settings.checkpoint_directory, job_id).exists())
    assert savepoints(manager) == [savepoint]


async def test_the_final_savepoint_is_stored_in_the_jobs_directory(manager: RunningJobManager) -> None:
    own = Path(manager.settings.savepoint_directory) / "own"
    job_id = await manager.submit_running({"execution.checkpointing.savepoint-dir": str(own)})

    await (await manager.driver(1)).ends()

    await manager.until(job_id, "FINISHED")
    assert [path.parent.parent for path in own.glob("*/_metadata")] == [own]


async def test_the_job_is_not_finished_before_its_savepoint_is_complete(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SlowStorage(monkeypatch)
    job_id = await manager.submit_running()
    driver = await manager.driver(1)

    await driver.ends()

    await eventually(storage.is_writing.is_set)
    assert (await manager.status(job_id), driver.stops) == ("RUNNING", [])
    storage.go.set()
    await manager.until(job_id, "FINISHED")


async def test_a_run_without_a_new_batch_keeps_the_savepoint_that_it_was_started_from(
    manager: RunningJobManager,
) -> None:
    first = await manager.submit_running()
    await (await manager.driver(1)).ends()
    await manager.until(first, "FINISHED")
    (savepoint,) = savepoints(manager)
    second = await manager.submit_running(savepointPath=str(savepoint))
    driver = manager.launcher.drivers[-1]

    await driver.ends(has_advanced=False)

    await manager.until(second, "FINISHED")
    assert (driver.triggers, savepoints(manager)) == ([], [savepoint])
    assert [stop.cause for stop in driver.stops] == [FinishCause.BY_ITSELF]
    assert await end_cause(manager, second) == "the driver finished by itself, without a new batch"


async def test_a_run_that_claimed_its_savepoint_takes_a_final_one(manager: RunningJobManager) -> None:
    """The job owns the claimed savepoint, which is deleted with the job."""
    first = await manager.submit_running()
    await (await manager.driver(1)).ends()
    await manager.until(first, "FINISHED")
    (claimed,) = savepoints(manager)
    second = await manager.submit_running(savepointPath=str(claimed), claimMode="CLAIM")

    await manager.launcher.drivers[-1].ends(has_advanced=False)

    await manager.until(second, "FINISHED")
    await eventually(lambda: claimed not in savepoints(manager))
    assert len(savepoints(manager)) == 1


async def test_a_first_run_without_any_batch_has_nothing_to_save(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)

    await driver.ends(has_advanced=False)

    await manager.until(job_id, "FINISHED")
    assert (driver.triggers, savepoints(manager)) == ([], [])


async def test_a_failed_final_savepoint_is_retried_and_the_reason_is_shown(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(final_savepoint, "PAUSES_S", (0.01,))
    monkeypatch.setattr(final_savepoint, "TRIES_BEFORE_CHECKPOINT", 1_000_000)
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.decline_reason = "CHECKPOINT_ASYNC_EXCEPTION"

    await driver.ends()

    await eventually(lambda: len(driver.triggers) > 2)
    (message,) = await exceptions(manager, job_id)
    assert message.startswith("The final savepoint failed and is tried again: ")
    assert await manager.status(job_id) == "RUNNING"
    driver.decline_reason = None
    await manager.until(job_id, "FINISHED")
    assert len(savepoints(manager)) == 1


@pytest.mark.parametrize("retention", ["NO_EXTERNALIZED_CHECKPOINTS", "RETAIN_ON_CANCELLATION"])
async def test_a_checkpoint_is_kept_if_no_savepoint_can_be_taken(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch, retention: str
) -> None:
    monkeypatch.setattr(final_savepoint, "PAUSES_S", (0.01,))
    job_id = await manager.submit_running({RETENTION: retention})
    Path(manager.settings.savepoint_directory).parent.mkdir(parents=True, exist_ok=True)
    Path(manager.settings.savepoint_directory).write_text("a file where the directory should be")

    await (await manager.driver(1)).ends()

    await manager.until(job_id, "FINISHED")
    (kept,) = Path(manager.settings.checkpoint_directory, job_id).glob("chk-*/_metadata")
    text = await exceptions(manager, job_id)
    assert text[0] == f"No final savepoint could be taken. Checkpoint {kept.parent.name[4:]} stays instead."
    cause = await end_cause(manager, job_id)
    assert cause == "the driver finished by itself, without a final savepoint: its checkpoints stay"


async def test_a_job_waits_for_storage_that_accepts_neither_savepoint_nor_checkpoint(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has no restart strategy and tolerates no failed checkpoint, so any failure would end it."""
    monkeypatch.setattr(final_savepoint, "PAUSES_S", (0.01,))

    def full(storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint) -> int:
        raise OSError(28, "No space left on device")

    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    with monkeypatch.context() as patched:
        patched.setattr(FileCheckpointStorage, "write_metadata", full)
        await driver.ends()
        await eventually(lambda: len(driver.triggers) > 6)
        assert await manager.status(job_id) == "RUNNING"
        assert "No space left on device" in (await exceptions(manager, job_id))[0]

    await manager.until(job_id, "FINISHED")
    assert len(manager.launcher.drivers) == 1


async def test_a_driver_that_dies_before_the_savepoint_is_replaced(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await manager.submit_running(RESTART)
    driver = await manager.driver(1)
    driver.acknowledges = False
    await driver.ends()
    await eventually(lambda: driver.triggers)

    driver.kill(-9)

    second = await manager.driver(2)
    await manager.until(job_id, "RUNNING")
    assert savepoints(manager) == []
    await second.ends()
    await manager.until(job_id, "FINISHED")
    assert len(savepoints(manager)) == 1


@pytest.mark.parametrize("code", [-9, 0])
async def test_a_driver_that_dies_after_the_savepoint_is_not_needed_any_more(
    manager: RunningJobManager, code: int
) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.obeys_stop = False
    await driver.ends()
    await eventually(lambda: driver.stops)

    driver.kill(code)

    await manager.until(job_id, "FINISHED")
    assert len(savepoints(manager)) == 1


async def test_a_job_that_waits_for_its_savepoint_can_be_cancelled(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.acknowledges = False
    await driver.ends()
    await eventually(lambda: driver.triggers)

    await manager.cancel(job_id)

    await manager.until(job_id, "CANCELED")
    assert driver.cancels == 1


async def test_a_stop_during_the_final_savepoint_is_refused(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SlowStorage(monkeypatch)
    job_id = await manager.submit_running()
    await (await manager.driver(1)).ends()
    await eventually(storage.is_writing.is_set)

    result = await manager.savepoint(job_id, "stop")

    assert "The final savepoint of a job that has ended by itself is in progress" in str(result["failure-cause"])
    storage.go.set()
    await manager.until(job_id, "FINISHED")


async def test_a_driver_that_ends_by_itself_during_a_failing_stop_saves_afterwards(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.timeout": "5 s"})
    driver = await manager.driver(1)
    driver.acknowledges = False
    stopping = await manager.post(f"/jobs/{job_id}/stop")
    await eventually(lambda: driver.triggers)
    await driver.ends()
    driver.acknowledges = True

    await manager.operation(f"/jobs/{job_id}/savepoints/{stopping['request-id']}")

    await manager.until(job_id, "FINISHED")
    assert len(savepoints(manager)) == 1


async def ended_under_a_leader_that_dies(cluster: Cluster, *, is_complete: bool) -> tuple[str, FakeDriver]:
    """Run a job whose leader dies before its result is recorded. `is_complete`: its final savepoint was complete."""
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running()
        driver = await first.driver(1)
        driver.obeys_stop, driver.acknowledges = False, is_complete
        await driver.ends()
        await eventually(lambda: driver.stops if is_complete else driver.triggers)
    driver.obeys_stop = driver.acknowledges = True
    return job_id, driver


@pytest.mark.parametrize("is_complete", [True, False])
async def test_the_next_leader_finishes_a_job_that_ended_under_the_one_before_with_one_savepoint(
    cluster: Cluster, is_complete: bool
) -> None:
    job_id, driver = await ended_under_a_leader_that_dies(cluster, is_complete=is_complete)
    async with cluster.job_manager(WAYMARK_CANCEL_TIMEOUT="0.5") as second:
        driver.obeys_stop = not is_complete  # a driver that does not end is killed
        cluster.drivers_find(second)
        await leads(second)

        await second.until(job_id, "FINISHED")

        assert (len(cluster.launcher.drivers), len(savepoints(second))) == (1, 1)
        assert FinishCause.AFTER_SAVEPOINT in [stop.cause for stop in driver.stops]
        assert "by itself, with final savepoint" in await end_cause(second, job_id)


async def test_the_next_leader_needs_no_driver_where_the_final_savepoint_is_complete(cluster: Cluster) -> None:
    job_id, driver = await ended_under_a_leader_that_dies(cluster, is_complete=True)
    driver.kill(-9)
    async with cluster.job_manager() as second:
        await leads(second)

        await second.until(job_id, "FINISHED")

        assert (len(cluster.launcher.drivers), len(savepoints(second))) == (1, 1)


async def test_a_final_savepoint_that_lost_a_file_is_taken_again_by_the_next_leader(cluster: Cluster) -> None:
    job_id, _ = await ended_under_a_leader_that_dies(cluster, is_complete=True)
    (damaged,) = (cluster.directory / "state").glob("savepoints/*/wordcount/state/*-1")
    damaged.unlink()
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)

        await second.until(job_id, "FINISHED")

        assert (len(cluster.launcher.drivers), len(savepoints(second))) == (1, 2)
