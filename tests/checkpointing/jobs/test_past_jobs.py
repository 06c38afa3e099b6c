"""Without high availability no job is recovered, but the orphaned files of a dead job manager are removed."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointing.jobs import retries
from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.jobs.past_jobs import PastJobs
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import CheckpointKind
from checkpointing.storage import FileCheckpointStorage, SavepointRoots, local_path, read_metadata, verify
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.savepoint_intents import SavepointIntents
from tests.checkpointing.coordinator.job_on_disk import JobOnDisk, surviving_stores
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager

JOB_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(retries, "LONGEST_PAUSE_S", 0.05)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that receives the result of each check whether the driver has ended."""
    seen: list[bool] = []
    look = PastJobs._is_driver_gone

    def noted(past: PastJobs, record: AttemptRecord | None, began_s: float) -> bool:
        seen.append(look(past, record, began_s))
        return seen[-1]

    monkeypatch.setattr(PastJobs, "_is_driver_gone", noted)
    return seen


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process in a separate session, so that it outlives its job manager."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def left_by_a_dead_job_manager(tmp_path: Path, **record: object) -> Path:
    state, numbers = tmp_path / "state", BatchNumbers(JOB_ID, 0, 10_000)
    JobDirectory(state / "jobs", JOB_ID).write_record(
        AttemptRecord(1, "t", str(state / "work"), 1, numbers, "", host=socket.gethostname(), **record)  # type: ignore[arg-type]
    )
    intents = SavepointIntents(state / "savepoint-intents", JOB_ID)
    root = str(state / "savepoints")
    storage = FileCheckpointStorage(None, JOB_ID, savepoint_roots=SavepointRoots([root]), intents=intents)
    directory = Path(storage.initialize_location(3, CheckpointKind.SAVEPOINT, root).directory)
    (directory / "wordcount" / "state").mkdir(parents=True)
    (directory / "wordcount" / "state" / "half").write_text("x")
    intents.abandon()
    return directory


async def is_removed(directory: Path) -> None:
    await eventually(lambda: not directory.exists())
    await eventually(lambda: not list((directory.parents[1] / "savepoint-intents").iterdir()))


async def test_the_next_job_manager_removes_orphaned_files(tmp_path: Path) -> None:
    directory = left_by_a_dead_job_manager(tmp_path, ended=True)

    async with running_job_manager(tmp_path):
        await is_removed(directory)


async def test_failed_removal_of_a_past_job_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_tree, refused = LocalFiles.remove_tree, []

    def refuse_once(files: LocalFiles, path: str) -> None:
        if not refused:
            refused.append(path)
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        remove_tree(files, path)

    monkeypatch.setattr(LocalFiles, "remove_tree", refuse_once)
    directory = left_by_a_dead_job_manager(tmp_path, ended=True)

    async with running_job_manager(tmp_path):
        await is_removed(directory)
    assert refused == [str(directory)]


async def test_past_job_is_kept_while_its_driver_runs(
    tmp_path: Path, driver: subprocess.Popen[bytes], looks: list[bool]
) -> None:
    directory = left_by_a_dead_job_manager(tmp_path, pid=driver.pid)
    async with running_job_manager(tmp_path):
        await eventually(lambda: len(looks) > 2)
        assert not any(looks)
        assert directory.exists()
        driver.kill()
        await asyncio.to_thread(driver.wait)
        await is_removed(directory)


async def test_past_job_of_an_unseen_driver_is_removed_after_its_lease(tmp_path: Path, looks: list[bool]) -> None:
    directory = left_by_a_dead_job_manager(tmp_path)  # killed after it wrote the record without the PID

    async with running_job_manager(tmp_path, WAYMARK_HEARTBEAT_TIMEOUT="600"):
        await eventually(lambda: len(looks) > 2)
        assert directory.exists()
    async with running_job_manager(tmp_path, WAYMARK_HEARTBEAT_TIMEOUT="0.2"):
        await is_removed(directory)


async def test_a_job_that_runs_again_removes_unfinished_savepoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job with the same ID sweeps before its first attempt, when no driver can write files."""
    monkeypatch.setattr(retries, "FIRST_PAUSE_S", 600.0)
    directory = left_by_a_dead_job_manager(tmp_path, ended=True)

    async with running_job_manager(tmp_path) as manager:
        await manager.submit_running(jobId=JOB_ID)
        assert not directory.exists()
        assert (await savepoint_directory(manager)).is_dir()


@pytest.mark.parametrize("asked", [None, "asked"], ids=["configured-directory", "the-jobs-own"])
async def test_an_incomplete_checkpoint_is_removed_and_a_complete_one_is_kept(
    tmp_path: Path, asked: str | None
) -> None:
    root = tmp_path / asked if asked is not None else tmp_path / "state" / "checkpoints"
    complete = killed_in_a_checkpoint(root)
    left_by_a_dead_job_manager(tmp_path, checkpoint_directory=str(root) if asked is not None else None, pid=1 << 22)

    async with running_job_manager(tmp_path):
        await eventually(lambda: sorted(path.name for path in (root / JOB_ID).glob("chk-*")) == ["chk-1"])
        verify(complete.location, deep=True)
        assert [path.name for path in (root / JOB_ID / "shared").iterdir()] == ["a"]
        await eventually(lambda: JobDirectory(tmp_path / "state" / "jobs", JOB_ID).read_record().ended)  # type: ignore[union-attr]


async def test_second_job_manager_in_a_shared_directory_finds_no_past_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[set[str]] = []
    look = PastJobs._unfinished

    def noted(past: PastJobs) -> set[str]:
        found.append(look(past))
        return found[-1]

    monkeypatch.setattr(PastJobs, "_unfinished", noted)
    async with running_job_manager(tmp_path) as first:
        job_id = await first.submit_running()
        async with running_job_manager(tmp_path, first.launcher):
            await eventually(lambda: len(found) == 2)
        assert found == [set(), set()]
        assert await first.status(job_id) == "RUNNING"


def killed_in_a_checkpoint(root: Path) -> CompletedCheckpoint:
    """Complete a checkpoint, and leave the files of a second one, during which the job manager was killed."""
    job = JobOnDisk(root.parent / "work", JOB_ID, surviving_stores())
    complete = job.checkpoint("a")
    job.trigger()
    job.begin_snapshot("a", "b")
    job.write_only(job.work[-1])
    root.parent.mkdir(exist_ok=True)
    (root.parent / "work" / "checkpoints").rename(root)
    return read_metadata(complete.location.replace(str(root.parent / "work" / "checkpoints"), str(root)))


async def savepoint_directory(manager: RunningJobManager) -> Path:
    return Path(local_path(str((await manager.savepoint(JOB_ID))["location"])))
