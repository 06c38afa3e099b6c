"""A storage that is full, is read-only or loses files, at each step of a checkpoint: the error names the fault."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from checkpointing.coordinator.cleaning import RETRIES_AFTER_S
from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.coordinator.reasons import CheckpointFailureReason as Reason
from checkpointing.ha.errors import CheckpointsUnreadable
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.status import JobStatus
from checkpointing.storage import verify
from checkpointing.storage.files import LocalFiles
from tests.checkpointing.coordinator.job_on_disk import JobOnDisk, SurvivingHandles, surviving_stores
from tests.checkpointing.doubles import JOB_ID, reason_of


class BrokenFiles(LocalFiles):
    """Local files whose operations in `broken` fail with the error `code`."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code
        self.broken: frozenset[str] = frozenset()

    def _check(self, operation: str, path: str) -> None:
        if operation in self.broken:
            raise OSError(self.code, os.strerror(self.code), path)

    def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
        self._check("make_directory", path)
        super().make_directory(path, new=new, parents=parents)

    def write_durably(self, path: str, content: bytes) -> None:
        self._check("write_durably", path)
        super().write_durably(path, content)

    def remove_file(self, path: str) -> None:
        self._check("remove_file", path)
        super().remove_file(path)

    def remove_tree(self, path: str) -> None:
        self._check("remove_tree", path)
        super().remove_tree(path)


def files_in(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def assert_whole(job: JobOnDisk) -> None:
    for checkpoint in job.store.checkpoints:
        verify(checkpoint.location, deep=True)


@pytest.fixture(params=[errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
def files(request: pytest.FixtureRequest) -> BrokenFiles:
    return BrokenFiles(request.param)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [("make_directory", Reason.IO_EXCEPTION), ("write_durably", Reason.FINALIZE_CHECKPOINT_FAILURE)],
)
def test_a_checkpoint_that_cannot_be_written_fails_with_the_cause(
    tmp_path: Path, files: BrokenFiles, operation: str, reason: Reason
) -> None:
    job = JobOnDisk(tmp_path, JOB_ID, surviving_stores(), files=files)
    older, newer = job.checkpoint("a"), job.checkpoint("a", "b")
    before = files_in(tmp_path)

    files.broken = frozenset({operation})
    future = job.trigger()
    if operation == "write_durably":
        job.begin_snapshot("a", "c")
        job.acknowledge(job.work[-1], all_of_them=True)

    assert reason_of(future) is reason
    assert os.strerror(files.code) in str(future.exception(timeout=0))
    assert files_in(tmp_path) == before
    assert [c.checkpoint_id for c in job.store.checkpoints] == [older.checkpoint_id, newer.checkpoint_id]
    assert_whole(job)
    files.broken = frozenset()
    assert job.checkpoint("b").checkpoint_id == 4
    assert_whole(job)
    assert job.end(JobStatus.FINISHED) == [None]
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize("operation", ["remove_file", "remove_tree"])
def test_failed_removal_is_retried(tmp_path: Path, files: BrokenFiles, operation: str) -> None:
    job = JobOnDisk(tmp_path, JOB_ID, surviving_stores(), files=files, num_retained=1)
    first = job.checkpoint("a")
    files.broken = frozenset({operation})

    job.checkpoint("b")
    third = job.checkpoint("b")
    assert Path(first.location).exists()
    assert_whole(job)
    files.broken = frozenset()
    job.timer.advance(sum(RETRIES_AFTER_S))

    assert files_in(tmp_path / "checkpoints" / JOB_ID) == {
        f"chk-{third.checkpoint_id}/{name}" for name in ("_metadata", "q/state/own-0", "q/state/own-1")
    } | {"shared/b"}
    assert job.left_behind == []


def test_permanent_removal_failure_is_reported_and_retried_at_the_next_start(
    tmp_path: Path, files: BrokenFiles
) -> None:
    stores = surviving_stores()
    job = JobOnDisk(tmp_path, JOB_ID, stores, files=files, num_retained=1)
    first = job.checkpoint("a")
    files.broken = frozenset({"remove_file", "remove_tree"})
    newest = job.checkpoint("a")

    assert job.end(JobStatus.SUSPENDED) == [None]

    (text,) = job.left_behind
    assert text.startswith(f"The checkpoint directory {first.location}: ")
    assert os.strerror(files.code) in text
    files.broken = frozenset()
    again = JobOnDisk(tmp_path, JOB_ID, stores, files=files, num_retained=1)
    assert not Path(first.location).exists()
    assert again.coordinator.latest_completed == newest


class LosingHandles(SurvivingHandles):
    """A handle store that loses the answer to an add while `loses`. `takes`: the add was executed."""

    def __init__(self) -> None:
        super().__init__()
        self.loses = False
        self.takes = False

    def add_and_lock(self, name: str, handle: bytes) -> None:
        if self.loses and not self.takes:
            raise PossibleInconsistentState("the connection was lost")
        super().add_and_lock(name, handle)
        if self.loses:
            raise PossibleInconsistentState("the connection was lost")


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("how", ["next checkpoint", "end", "kill"])
def test_a_checkpoint_that_the_store_may_have_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool, how: str
) -> None:
    handles = LosingHandles()
    monkeypatch.setattr("tests.checkpointing.coordinator.job_on_disk.SurvivingHandles", lambda: handles)
    job = JobOnDisk(tmp_path, JOB_ID, surviving_stores(), num_retained=1)
    first = job.checkpoint("a")
    handles.loses, handles.takes = True, taken
    lost = job.trigger()
    job.begin_snapshot("a", "b")
    job.acknowledge(job.work[-1], all_of_them=True)
    assert reason_of(lost) is Reason.FINALIZE_CHECKPOINT_FAILURE
    assert Path(first.location).with_name("chk-2").exists()
    handles.loses = False

    if how == "kill":
        job.kill()
        assert [c.checkpoint_id for c in job.store.checkpoints] == ([1, 2] if taken else [1])
        assert_whole(job)
    if how != "end":
        job.checkpoint("c")
        job.io.run_all()
        assert {path.name for path in Path(first.location).parent.glob("chk-*")} == {"chk-3"}
        assert {path.name for path in (Path(first.location).parent / "shared").iterdir()} == {"c"}
        assert handles.names() == [f"{3:019d}"]
    assert job.end(JobStatus.FINISHED) == [None]
    assert files_in(tmp_path) == set()


def test_metadata_that_vanished_is_named_and_the_others_are_used(tmp_path: Path) -> None:
    job = JobOnDisk(tmp_path, JOB_ID, surviving_stores())
    older, newer = job.checkpoint("a"), job.checkpoint("b")
    Path(newer.location, "_metadata").unlink()

    job.kill()

    assert job.coordinator.latest_completed == older
    (unreadable,) = job.store.unreadable
    assert "MetadataMissing" in unreadable.reason
    assert newer.location in unreadable.reason
    verify(older.location, deep=True)


def test_a_job_without_any_metadata_left_does_not_start_and_removes_nothing(tmp_path: Path) -> None:
    job = JobOnDisk(tmp_path, JOB_ID, surviving_stores())
    retained = [job.checkpoint("a"), job.checkpoint("b")]
    for checkpoint in retained:
        Path(checkpoint.location, "_metadata").unlink()
    before = files_in(tmp_path)

    with pytest.raises(CheckpointsUnreadable, match=r"none of 2 stored checkpoints can be read.*there is no _metadata"):
        job.kill()

    assert files_in(tmp_path) == before


def test_metadata_that_vanishes_between_the_listing_and_the_reading_is_passed_over(tmp_path: Path) -> None:
    class Vanishing(LocalFiles):
        def read(self, path: str) -> bytes:
            Path(path).unlink(missing_ok=True)
            return super().read(path)

    job = JobOnDisk(tmp_path, JOB_ID, surviving_stores())
    job.checkpoint("a")
    storage = type(job.storage)(str(tmp_path / "checkpoints"), JOB_ID, files=Vanishing())

    assert storage.found([]) == []


# --- a real file system ---------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk of 256 KB, or skip the test: only root may mount, and not in every container."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here; the same is tested with failing operations")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def _fill(disk: Path) -> Callable[[], None]:
    """Fill the disk, and return a function that frees the space again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    assert os.statvfs(disk).f_bfree == 0
    return ballast.unlink


def _remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


def _pending(job: JobOnDisk, *shared: str) -> Future[CompletedCheckpoint]:
    future = job.trigger()
    job.begin_snapshot(*shared)
    return future


def test_a_disk_that_fills_up_loses_no_retained_checkpoint(small_disk: Path) -> None:
    job = JobOnDisk(small_disk, JOB_ID, surviving_stores())
    job.checkpoint("a")
    future = _pending(job, "a")
    work = job.work[-1]
    job.acknowledge(work)
    make_room = _fill(small_disk)

    # The checkpoint's last files were written before, but its metadata no longer fits.
    job._written = lambda message, subtask, shared: ()  # type: ignore[method-assign]
    job.acknowledge(work, all_of_them=True)

    assert reason_of(future) is Reason.FINALIZE_CHECKPOINT_FAILURE
    assert "No space left on device" in str(future.exception(timeout=0)) or "full" in str(future.exception(timeout=0))
    assert_whole(job)
    assert not (Path(job.storage.job_directory) / "chk-2").exists()
    del job._written  # type: ignore[method-assign]
    make_room()
    job.checkpoint("b")
    assert_whole(job)


def test_a_disk_that_becomes_read_only_loses_no_retained_checkpoint(small_disk: Path) -> None:
    job = JobOnDisk(small_disk, JOB_ID, surviving_stores(), num_retained=1)
    job.checkpoint("a")
    future = _pending(job, "b")
    job.acknowledge(job.work[-1], all_of_them=True)
    assert future.exception(timeout=0) is None
    _remount(small_disk, "ro")

    failed = job.trigger()
    assert reason_of(failed) is Reason.IO_EXCEPTION
    assert "ead-only" in str(failed.exception(timeout=0))
    assert_whole(job)
    _remount(small_disk, "rw")
    job.checkpoint("b")
    job.timer.advance(sum(RETRIES_AFTER_S))
    assert {path.name for path in Path(job.storage.job_directory).glob("chk-*")} == {"chk-4"}
    assert job.end(JobStatus.FINISHED) == [None]
    assert files_in(small_disk) == set()
