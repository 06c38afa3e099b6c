"""If files of a checkpoint cannot be removed, the job continues, ends normally, and reports the files."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.storage import FileCheckpointStorage
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually


async def test_failed_removal_is_in_the_exception_history(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(storage: FileCheckpointStorage, location: CheckpointLocation) -> None:
        raise OSError(errno.EROFS, "Read-only file system", location.directory)

    job_id = await manager.submit_running()
    await manager.checkpoint(job_id)
    monkeypatch.setattr(FileCheckpointStorage, "discard_location", refuse)
    await manager.checkpoint(job_id)
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")

    async def reported() -> list[str]:
        entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
        return [entry["message"] for entry in entries if entry["exceptionName"] == "CheckpointNotRemoved"]

    messages = await eventually(reported)
    first = Path(manager.settings.checkpoint_directory, job_id, "chk-1")
    assert any(f"{first} could not be removed and stays: " in message for message in messages)
    assert all("Read-only file system" in message for message in messages)


async def test_a_sweep_that_fails_is_logged_and_keeps_no_job_from_its_end(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    swept: list[str] = []

    def fail(*args: object, **more: object) -> None:
        swept.append("tried")
        raise RuntimeError("a mistake of ours")

    job_id = await manager.submit_running()
    monkeypatch.setattr(FileCheckpointStorage, "sweep_savepoints", fail)  # the sweep while the driver runs
    assert await manager.checkpoint(job_id) == 1
    await eventually(lambda: f"job {job_id}: the sweep of orphaned files failed" in caplog.messages)
    assert swept
    await manager.cancel(job_id)
    results = manager.settings.state_directory / "ha" / "job-result-store"
    await eventually(lambda: (results / f"{job_id}.json").exists())
