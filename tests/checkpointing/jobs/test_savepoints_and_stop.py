# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""Savepoints, stop-with-savepoint, and starts from a savepoint."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.rest.client import RequestRefused
from checkpointing.storage import FileCheckpointStorage
from tests.checkpointing.jobs.fake_driver import FakeDriver
from tests.checkpointing.jobs.running_job_manager import LIMIT_S, RunningJobManager, eventually

RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}


async def test_a_savepoint_is_stored_in_the_configured_directory(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    result = await manager.savepoint(job_id)

    location = Path(result["location"].removeprefix("file:"))
    assert location.parent == Path(manager.settings.savepoint_directory)
    assert location.name.startswith(f"savepoint-{job_id[:6]}-")
    assert (location / "_metadata").is_file()


async def test_the_same_trigger_id_takes_one_savepoint(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    body = {"triggerId": "0" * 29 + "abc"}

    first = await manager.savepoint(job_id, **body)
    second = await manager.savepoint(job_id, **body)

    assert first == second
    assert len(list(Path(manager.settings.savepoint_directory).iterdir())) == 1


async def test_stop_with_savepoint_finishes_the_job_and_names_the_savepoint(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.interval": "50 ms"})

    result = await manager.savepoint(job_id, "stop", drain=False)

    assert Path(result["location"].removeprefix("file:"), "_metadata").is_file()
    assert await manager.status(job_id) == "FINISHED"
    statistics = await manager.get(f"/jobs/{job_id}/checkpoints")
    assert statistics["latest"]["savepoint"]["checkpoint_type"] == "SYNC_SAVEPOINT"


async def test_a_stop_with_drain_is_refused_and_does_not_affect_the_job(manager: RunningJobManager) -> None:
    """The driver gets no request, because a declined synchronous savepoint would end its attempt."""
    job_id = await manager.submit_running(RESTART)

    result = await manager.savepoint(job_id, "stop", drain=True)

    assert "OperationRefused: A PySpark job cannot be drained" in result["failure-cause"]["stack-trace"]
    assert manager.launcher.drivers[-1].triggers == []
    assert await manager.checkpoint(job_id) == 1
    assert (await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["failed"] == 0
    assert len(manager.launcher.drivers) == 1


async def test_conformance_o04_a_failed_final_savepoint_leaves_the_job_running(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.interval": "50 ms"})
    Path(manager.settings.savepoint_directory).parent.mkdir(parents=True, exist_ok=True)
    Path(manager.settings.savepoint_directory).write_text("a file where the directory should be")

    async def completed() -> int:
        return int((await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["completed"])

    result = await manager.savepoint(job_id, "stop")

    assert result["failure-cause"]["class"].endswith("CheckpointException")
    assert await manager.status(job_id) == "RUNNING"
    so_far = await completed()  # a checkpoint may just have been added

    async def periodic_again() -> bool:
        return await completed() >= so_far + 2

    await eventually(periodic_again)


FAILURES_OF_A_DRIVER = ("CHECKPOINT_ASYNC_EXCEPTION", "CHECKPOINT_DECLINED", "CHECKPOINT_DECLINED_TASK_NOT_READY")


@pytest.mark.parametrize("reason", FAILURES_OF_A_DRIVER)
@pytest.mark.parametrize("cancels", [False, True])
async def test_a_job_whose_driver_declines_its_last_savepoint_runs_on(
    manager: RunningJobManager, reason: str, cancels: bool
) -> None:
    """The job has no restart strategy and tolerates no failures, so a failed attempt would end it."""
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.decline_reason = reason

    result = await (manager.savepoint(job_id, **{"cancel-job": True}) if cancels else manager.savepoint(job_id, "stop"))

    assert "the fake driver declines" in result["failure-cause"]["stack-trace"]
    await runs_on(manager, job_id, driver)


async def test_a_job_whose_last_savepoint_expires_runs_on(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.timeout": "100 ms"})
    driver = await manager.driver(1)
    driver.acknowledges = False

    result = await manager.savepoint(job_id, "stop")

    assert "Checkpoint expired before completing." in result["failure-cause"]["stack-trace"]
    await is_undisturbed(manager, job_id)


async def test_a_job_whose_last_savepoint_cannot_be_written_runs_on(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint) -> int:
        raise OSError(28, "No space left on device")

    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    with monkeypatch.context() as patched:
        patched.setattr(FileCheckpointStorage, "write_metadata", full)
        result = await manager.savepoint(job_id, "stop")

    assert "No space left on device" in result["failure-cause"]["stack-trace"]
    await runs_on(manager, job_id, driver)


async def runs_on(manager: RunningJobManager, job_id: str, driver: FakeDriver) -> None:
    driver.decline_reason = None
    await manager.checkpoint(job_id)
    await is_undisturbed(manager, job_id)
    assert "location" in await manager.savepoint(job_id, "stop"), "it can be stopped again"


async def is_undisturbed(manager: RunningJobManager, job_id: str) -> None:
    assert await manager.status(job_id) == "RUNNING"
    assert len(manager.launcher.drivers) == 1
    assert (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"] == []


async def test_a_stop_is_repeated_to_a_driver_whose_connection_broke(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SlowStorage(monkeypatch)
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    trigger = (await manager.post(f"/jobs/{job_id}/stop"))["request-id"]
    await eventually(storage.is_writing.is_set)
    address, driver.address = driver.address, "http://127.0.0.1:1"
    assert driver.connection is not None
    await driver.connection.close()

    async def completed() -> bool:
        return bool((await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["completed"])

    storage.go.set()
    await eventually(completed)
    assert driver.stops == []
    driver.address = address

    assert "location" in await manager.operation(f"/jobs/{job_id}/savepoints/{trigger}")
    await manager.until(job_id, "FINISHED")
    assert driver.known_at_registration == [(), (1,)], "it must not give the savepoint up, which starts its queries"
    assert (driver.completed, len(driver.stops)) == ([1], 1)


async def test_a_driver_that_ended_on_request_has_finished_even_if_its_report_was_lost(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.obeys_stop = False
    trigger = (await manager.post(f"/jobs/{job_id}/stop"))["request-id"]
    await eventually(lambda: driver.stops)

    driver.kill(0)

    assert "location" in await manager.operation(f"/jobs/{job_id}/savepoints/{trigger}")
    await manager.until(job_id, "FINISHED")


@pytest.mark.parametrize(
    ("retention", "end", "stays"),
    [
        ("RETAIN_ON_CANCELLATION", "by itself", True),
        ("RETAIN_ON_CANCELLATION", "stop", False),
        ("DELETE_ON_CANCELLATION", "by itself", True),
    ],
)
async def test_retained_checkpoints_are_removed_only_with_a_stopped_job(
    manager: RunningJobManager, retention: str, end: str, stays: bool
) -> None:
    """The job may also end by itself without a final savepoint, as with drivers of an earlier version."""
    job_id = await manager.submit_running({"execution.checkpointing.externalized-checkpoint-retention": retention})
    await manager.checkpoint(job_id)
    directory = Path(manager.settings.checkpoint_directory, job_id)

    if end == "stop":
        await manager.savepoint(job_id, "stop")
    else:
        await (await manager.driver(1)).finish()
    await manager.until(job_id, "FINISHED")

    await eventually(lambda: not (directory / "shared").exists())
    assert (directory / "chk-1" / "_metadata").is_file() is stays


async def test_a_driver_that_finishes_by_itself_during_a_stop_keeps_its_retained_checkpoints(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(
        {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    )
    await manager.checkpoint(job_id)
    driver = await manager.driver(1)
    driver.acknowledges = False
    trigger = (await manager.post(f"/jobs/{job_id}/stop"))["request-id"]
    await eventually(lambda: len(driver.triggers) == 2)

    await driver.finish()

    assert "failure-cause" in await manager.operation(f"/jobs/{job_id}/savepoints/{trigger}")
    await manager.until(job_id, "FINISHED")
    directory = Path(manager.settings.checkpoint_directory, job_id)
    await eventually(lambda: not (directory / "shared").exists())
    assert (directory / "chk-1" / "_metadata").is_file()


async def test_conformance_o05_a_driver_that_fails_after_the_savepoint_names_it(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RESTART)
    driver = await manager.driver(1)
    driver.obeys_stop = False
    trigger = (await manager.post(f"/jobs/{job_id}/stop"))["request-id"]
    await eventually(lambda: driver.completed)
    await driver.report_failure("could not stop")

    result = await manager.operation(f"/jobs/{job_id}/savepoints/{trigger}")

    assert "A savepoint has been created at: " in result["failure-cause"]["stack-trace"]
    assert str(manager.settings.savepoint_directory) in result["failure-cause"]["stack-trace"]
    await manager.driver(2)
    await manager.until(job_id, "RUNNING")


class SlowStorage:
    """A storage whose writes of metadata wait until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_writing = threading.Event()
        self.go = threading.Event()
        write = FileCheckpointStorage.write_metadata

        def held_up(storage: FileCheckpointStorage, checkpoint: CompletedCheckpoint) -> int:
            self.is_writing.set()
            assert self.go.wait(LIMIT_S)
            return write(storage, checkpoint)

        monkeypatch.setattr(FileCheckpointStorage, "write_metadata", held_up)


async def test_conformance_o06_a_driver_that_finishes_before_the_savepoint_is_complete_does_not_lose_it(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = SlowStorage(monkeypatch)
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    trigger = (await manager.post(f"/jobs/{job_id}/stop"))["request-id"]
    await eventually(storage.is_writing.is_set)

    await driver.finish()
    await eventually(driver.process.exited.done)
    storage.go.set()

    location = (await manager.operation(f"/jobs/{job_id}/savepoints/{trigger}"))["location"]
    assert Path(location.removeprefix("file:"), "_metadata").is_file()
    await manager.until(job_id, "FINISHED")


async def test_a_driver_that_finishes_without_its_part_of_the_savepoint_leaves_none(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.acknowledges = False
    trigger = (await manager.post(f"/jobs/{job_id}/stop"))["request-id"]
    await eventually(lambda: driver.triggers)

    await driver.finish()

    result = await manager.operation(f"/jobs/{job_id}/savepoints/{trigger}")
    assert "CheckpointCoordinator shutdown" in result["failure-cause"]["stack-trace"]
    await manager.until(job_id, "FINISHED")
    assert not list(Path(manager.settings.savepoint_directory).glob("*"))


async def test_a_savepoint_of_an_unknown_job_fails_in_its_result(manager: RunningJobManager) -> None:
    result = await manager.savepoint("0" * 31 + "9")

    assert result["failure-cause"]["class"].endswith("FlinkJobNotFoundException")


async def test_a_savepoint_with_cancel_job_cancels_after_it(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    result = await manager.savepoint(job_id, **{"cancel-job": True})

    assert "location" in result
    await manager.until(job_id, "CANCELED")


async def test_a_job_starts_from_a_savepoint_and_its_ids_continue(manager: RunningJobManager) -> None:
    first = await manager.submit_running()
    for _ in range(3):
        await manager.checkpoint(first)
    savepoint = (await manager.savepoint(first, "stop"))["location"]

    second = await manager.submit_running(savepointPath=savepoint)

    restore = manager.launcher.specs[-1].restore
    assert restore is not None
    assert (restore.checkpoint_id, restore.is_savepoint) == (4, True)
    assert f"file:{restore.directory}" == savepoint
    assert await manager.checkpoint(second) == 5
    restored = (await manager.get(f"/jobs/{second}/checkpoints"))["latest"]["restored"]
    assert (restored["id"], restored["is_savepoint"], restored["external_path"]) == (4, True, savepoint)


async def test_a_restart_before_the_first_checkpoint_starts_from_the_savepoint_again(
    manager: RunningJobManager,
) -> None:
    first = await manager.submit_running()
    savepoint = (await manager.savepoint(first, "stop"))["location"]
    await manager.submit_running(RESTART, savepointPath=savepoint)

    await manager.launcher.drivers[-1].report_failure("crash")
    driver = await manager.driver(2)

    assert driver.spec.restore == manager.launcher.specs[1].restore


async def _savepoint_of_a_job(manager: RunningJobManager) -> Path:
    job_id = await manager.submit_running()
    return Path((await manager.savepoint(job_id))["location"].removeprefix("file:"))


@pytest.mark.parametrize("damage", ["missing", "outside", "damaged", "incomplete", "other program"])
async def test_a_bad_savepoint_is_refused_before_anything_starts(
    manager: RunningJobManager, tmp_path: Path, damage: str
) -> None:
    savepoint = await _savepoint_of_a_job(manager)
    entry_class = "wordcount.py:wordcount"
    match damage:
        case "missing":
            savepoint = savepoint.with_name("savepoint-000000-000000000000")
        case "outside":
            savepoint = savepoint.rename(tmp_path / savepoint.name)
        case "damaged":
            file = next(savepoint.rglob("2222*"))
            file.write_bytes(bytes(len(file.read_bytes())))
        case "incomplete":
            next(savepoint.rglob("2222*")).unlink()
        case "other program":
            entry_class = "other.py:wordcount"
    jar_id = await manager.upload(name=entry_class.partition(":")[0])
    before = len(manager.launcher.drivers)

    with pytest.raises(RequestRefused) as refusal:
        await manager.post(f"/jars/{jar_id}/run", {"entryClass": entry_class, "savepointPath": str(savepoint)})

    assert refusal.value.status == 400
    assert str(refusal.value).startswith("savepointPath: ")
    assert len(manager.launcher.drivers) == before
    verdict = await manager.post("/savepoints/validate", {"savepointPath": str(savepoint), "entryClass": entry_class})
    assert (verdict["valid"], verdict["missing"]) == (False, damage == "missing")
    assert verdict["reason"] in str(refusal.value)


@pytest.mark.parametrize("leaves", ["an empty mount point", "nothing"])
async def test_a_savepoint_on_possibly_unreachable_storage_is_not_reported_as_missing(
    manager: RunningJobManager, leaves: str
) -> None:
    savepoint = await _savepoint_of_a_job(manager)
    shutil.rmtree(savepoint.parent)
    if leaves != "nothing":
        savepoint.parent.mkdir()

    verdict = await manager.post("/savepoints/validate", {"savepointPath": str(savepoint)})

    assert (verdict["valid"], verdict["missing"]) == (False, False)


async def test_the_savepoint_of_another_program_is_restored_if_allowed(manager: RunningJobManager) -> None:
    savepoint = await _savepoint_of_a_job(manager)
    jar_id = await manager.upload(name="other.py")

    await manager.post(
        f"/jars/{jar_id}/run",
        {"entryClass": "other.py:wordcount", "savepointPath": str(savepoint), "allowNonRestoredState": True},
    )

    await eventually(lambda: len(manager.launcher.drivers) == 2)
    assert manager.launcher.specs[-1].restore is not None
    assert manager.launcher.specs[-1].restore.allow_non_restored_state


async def test_validate_describes_a_good_savepoint(manager: RunningJobManager) -> None:
    savepoint = await _savepoint_of_a_job(manager)

    verdict = await manager.post("/savepoints/validate", {"savepointPath": f"file:{savepoint}"})

    assert (verdict["valid"], verdict["missing"]) == (True, False)
    assert verdict["reason"] is None
    assert (verdict["checkpointId"], verdict["jobName"]) == (1, "wordcount")
    assert verdict["entryClass"] == "wordcount.py:wordcount"
    assert verdict["stateSize"] > 0
    assert verdict["completedTimestamp"] > 0


async def test_a_savepoint_can_be_disposed_of(manager: RunningJobManager) -> None:
    savepoint = await _savepoint_of_a_job(manager)

    trigger = (await manager.post("/savepoint-disposal", {"savepoint-path": f"file:{savepoint}"}))["request-id"]

    assert await manager.operation(f"/savepoint-disposal/{trigger}") == {}
    assert not savepoint.exists()


async def test_paths_outside_the_savepoint_directories_are_not_deleted(
    manager: RunningJobManager, tmp_path: Path
) -> None:
    with pytest.raises(RequestRefused) as refusal:
        await manager.post("/savepoint-disposal", {"savepoint-path": str(tmp_path)})

    assert refusal.value.status == 400
    assert tmp_path.exists()


async def test_a_target_outside_the_roots_is_refused(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    for path, key in (("savepoints", "target-directory"), ("stop", "targetDirectory")):
        with pytest.raises(RequestRefused, match="outside the savepoint directories"):
            await manager.post(f"/jobs/{job_id}/{path}", {key: "/etc"})

    assert await manager.status(job_id) == "RUNNING"
