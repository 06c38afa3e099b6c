"""Incomplete savepoints: which of their files are removed, and which files Waymark must not remove."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointing.model.messages import CheckpointKind
from checkpointing.storage import FileCheckpointStorage, SavepointRoots
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.savepoint_intents import SavepointIntents, jobs_with_intents

JOB_ID = "0123456789abcdef0123456789abcdef"


class JobManager:
    """A job manager that begins savepoints of a job below `root`, and may die."""

    def __init__(self, root: Path, files: LocalFiles | None = None, job_id: str = JOB_ID) -> None:
        self.root = root
        self.intents = SavepointIntents(root / "intents", job_id)
        self.roots = SavepointRoots([str(root / "savepoints")])
        self.storage = FileCheckpointStorage(
            None, job_id, savepoint_roots=self.roots, files=files, intents=self.intents
        )

    def begin(self) -> Path:
        location = self.storage.initialize_location(1, CheckpointKind.SAVEPOINT, str(self.root / "savepoints"))
        return Path(location.directory)

    def begin_and_die(self) -> Path:
        """Begin a savepoint, let the driver write a part of it, and end without completing it."""
        directory = self.begin()
        state = directory / "wordcount" / "state" / "0"
        state.mkdir(parents=True)
        (state / "1.changelog").write_text("half")
        self.intents.abandon()
        return directory

    def sweep(self) -> tuple[str, ...]:
        return tuple(self.storage.sweep_savepoints(lambda: True))

    @property
    def noted(self) -> list[str]:
        return sorted(path.name for path in (self.root / "intents").iterdir())


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[JobManager]:
    manager = JobManager(tmp_path)
    yield manager
    manager.intents.abandon()


@pytest.fixture
def next_one(tmp_path: Path) -> JobManager:
    return JobManager(tmp_path)


def test_the_intent_is_there_before_the_directory(tmp_path: Path) -> None:
    seen = []

    class WatchingFiles(LocalFiles):
        def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
            seen.append((jobs_with_intents(tmp_path / "intents"), Path(path).exists()))
            super().make_directory(path, new=new, parents=parents)

    manager = JobManager(tmp_path, WatchingFiles())
    manager.begin()
    manager.intents.abandon()

    assert seen == [({JOB_ID}, False)]


def test_savepoint_of_a_dead_job_manager_is_removed(dead: JobManager, next_one: JobManager) -> None:
    directory = dead.begin_and_die()

    assert next_one.sweep() == (str(directory),)
    assert not directory.exists()
    assert next_one.noted == []
    assert directory.parent.is_dir()


def test_a_savepoint_with_half_written_files_is_removed(dead: JobManager, next_one: JobManager) -> None:
    directory = dead.begin_and_die()
    (directory / f"._metadata.{'a' * 32}.tmp").write_text("{")
    (directory / "wordcount" / f".metadata.{'b' * 32}.tmp").write_text("")

    next_one.sweep()

    assert not directory.exists()


def test_savepoint_without_directory_leaves_no_intent(dead: JobManager, next_one: JobManager) -> None:
    dead.intents.begin(str(dead.root / "savepoints" / "savepoint-012345-0123456789ab"))
    dead.intents.abandon()

    assert next_one.sweep() == ()
    assert next_one.noted == []


def test_a_truncated_intent_names_no_directory(dead: JobManager, next_one: JobManager) -> None:
    directory = dead.begin_and_die()
    intent = dead.root / "intents" / f"{JOB_ID}.{directory.name}"
    intent.write_text(str(directory)[:-3])

    assert next_one.sweep() == ()
    assert directory.exists()
    assert next_one.noted == []


def test_complete_savepoint_is_kept(dead: JobManager, next_one: JobManager) -> None:
    directory = dead.begin_and_die()
    (directory / "_metadata").write_text("any content")

    assert next_one.sweep() == ()
    assert (directory / "wordcount" / "state" / "0" / "1.changelog").exists()
    assert next_one.noted == []


def _by_claim(directory: Path) -> str:
    (directory / "_claimed-ab").write_text("{}")
    return "_claimed-ab"


def _by_a_file(directory: Path) -> str:
    (directory / "notes.txt").write_text("mine")
    return "notes.txt"


def _by_a_directory(directory: Path) -> str:
    (directory / "photographs" / "holiday").mkdir(parents=True)
    return "photographs/holiday"


@pytest.mark.parametrize("fill", [_by_claim, _by_a_file, _by_a_directory])
def test_foreign_directory_and_its_intent_are_kept(
    dead: JobManager, next_one: JobManager, fill: Callable[[Path], str], caplog: pytest.LogCaptureFixture
) -> None:
    directory = dead.begin_and_die()
    foreign = fill(directory)

    assert next_one.sweep() == ()
    assert (directory / foreign).exists()
    assert (directory / "wordcount").exists()
    assert len(next_one.noted) == 1
    assert f"{foreign} in it is not ours" in caplog.text


@pytest.mark.parametrize("name", ["savepoint-ffffff-0123456789ab", "something"])
def test_a_directory_of_another_name_is_never_touched(dead: JobManager, next_one: JobManager, name: str) -> None:
    other = dead.root / "savepoints" / name
    (other / "wordcount").mkdir(parents=True)
    dead.intents.begin(str(other))
    dead.intents.abandon()

    assert next_one.sweep() == ()
    assert other.exists()


def test_savepoint_outside_the_roots_and_its_intent_are_kept(dead: JobManager) -> None:
    directory = dead.begin_and_die()
    elsewhere = SavepointRoots([str(dead.root / "elsewhere")])

    assert dead.intents.sweep(elsewhere, lambda: True) == ()
    assert directory.exists()
    assert dead.intents.sweep(dead.roots, lambda: True) == (str(directory),)


def test_a_link_that_leads_out_of_the_configured_directories_is_not_followed(dead: JobManager) -> None:
    directory = dead.begin_and_die()
    away = dead.root / "away"
    directory.parent.rename(away)
    (dead.root / "savepoints").symlink_to(away)
    roots = SavepointRoots([str(away / "deeper")])

    assert dead.intents.sweep(roots, lambda: True) == ()
    assert (away / directory.name).exists()


def test_savepoint_in_progress_of_another_job_manager_is_kept(dead: JobManager, next_one: JobManager) -> None:
    directory = dead.begin()

    assert next_one.sweep() == ()
    assert dead.sweep() == ()
    assert directory.exists()
    assert len(next_one.noted) == 1


def test_former_leader_removes_no_savepoint(dead: JobManager, next_one: JobManager) -> None:
    directory = dead.begin_and_die()

    assert next_one.storage.sweep_savepoints(lambda: False) == ()
    assert directory.exists()
    assert len(next_one.noted) == 1


def test_another_jobs_savepoint_is_left_to_that_job(dead: JobManager) -> None:
    directory = dead.begin_and_die()
    other = JobManager(dead.root, job_id="f" * 32)

    assert other.sweep() == ()
    assert directory.exists()


def test_the_intent_of_a_directory_that_cannot_be_removed_is_kept(dead: JobManager) -> None:
    class FullOfErrors(LocalFiles):
        def remove_tree(self, path: str) -> None:
            raise OSError(errno.EROFS, "Read-only file system", path)

    directory = dead.begin_and_die()

    with pytest.raises(OSError, match="Read-only"):
        JobManager(dead.root, FullOfErrors()).sweep()
    assert directory.exists()
    assert JobManager(dead.root).sweep() == (str(directory),)


def test_savepoint_that_could_not_start_leaves_no_intent(tmp_path: Path) -> None:
    class Refusing(LocalFiles):
        def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    manager = JobManager(tmp_path, Refusing())

    with pytest.raises(OSError, match="Permission denied"):
        manager.begin()
    assert manager.noted == []


def test_an_intent_that_cannot_be_synced_is_not_stored(dead: JobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def full(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        dead.intents.begin(str(dead.root / "savepoints" / "savepoint-012345-0123456789ab"))
    assert dead.noted == []


def test_discarded_savepoint_leaves_no_intent(dead: JobManager) -> None:
    location = dead.storage.initialize_location(1, CheckpointKind.SAVEPOINT, str(dead.root / "savepoints"))

    dead.storage.discard_location(location)

    assert dead.noted == []


def test_failed_discard_is_left_to_the_next_sweep(tmp_path: Path) -> None:
    class FullOfErrors(LocalFiles):
        def remove_tree(self, path: str) -> None:
            raise OSError(errno.EROFS, "Read-only file system", path)

    manager = JobManager(tmp_path, FullOfErrors())
    location = manager.storage.initialize_location(1, CheckpointKind.SAVEPOINT, str(tmp_path / "savepoints"))
    with pytest.raises(OSError, match="Read-only"):
        manager.storage.discard_location(location)

    JobManager(tmp_path).sweep()

    assert not Path(location.directory).exists()
    assert manager.noted == []


def test_a_job_manager_without_locks_keeps_its_intents(dead: JobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    directory = dead.begin()

    assert dead.sweep() == ()
    assert directory.exists()
    dead.intents.abandon()
    (directory / "wordcount").mkdir()
    assert dead.sweep() == (str(directory),)


def test_failed_removal_does_not_stop_other_removals(dead: JobManager) -> None:
    first, second = sorted([dead.begin_and_die(), dead.begin_and_die()])

    class Stubborn(LocalFiles):
        def remove_tree(self, path: str) -> None:
            if path == str(first):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
            super().remove_tree(path)

    with pytest.raises(OSError, match="busy"):
        JobManager(dead.root, Stubborn()).sweep()
    assert first.exists()
    assert not second.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"savepoint-012345-0123456789ab\n", b"\n"])
def test_an_invalid_intent_is_kept_for_a_person_to_inspect(dead: JobManager, content: bytes) -> None:
    dead.begin_and_die()
    [intent] = (dead.root / "intents").iterdir()
    intent.write_bytes(content)

    assert dead.sweep() == ()
    assert intent.exists()
