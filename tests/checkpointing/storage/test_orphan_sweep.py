"""Which files crashes leave in a job's checkpoint directory, and which of them a recovery removes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, StateFile, SubtaskMetrics, VertexKind
from checkpointing.storage import FileCheckpointStorage, verify
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.sweeping import Swept

JOB_ID = "0123456789abcdef0123456789abcdef"


class Crash(Exception):
    """Raised where the process would end."""


class CrashingFiles(LocalFiles):
    """Local files that raise Crash before the removal number `crash_at`."""

    def __init__(self, crash_at: int | None = None) -> None:
        super().__init__()
        self.crash_at = crash_at
        self.num_removals = 0

    def remove_file(self, path: str) -> None:
        self._count()
        super().remove_file(path)

    def remove_tree(self, path: str) -> None:
        self._count()
        super().remove_tree(path)

    def _count(self) -> None:
        if self.num_removals == self.crash_at:
            raise Crash
        self.num_removals += 1


class Job:
    """A job's checkpoint directory. `write` writes a complete checkpoint, `begin` an incomplete one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.storage = self.with_files(LocalFiles())
        self.path = Path(self.storage.job_directory)

    def with_files(self, files: LocalFiles) -> FileCheckpointStorage:
        return FileCheckpointStorage(str(self._directory), JOB_ID, files=files)

    def begin(self, checkpoint_id: int, shared: Sequence[str] = ()) -> tuple[str, str | None, tuple[StateFile, ...]]:
        location = self.storage.initialize_location(checkpoint_id, CheckpointKind.CHECKPOINT, None)
        files = [self._put(f"chk-{checkpoint_id}/own", is_shared=False)]
        files += [self._put(f"shared/{name}", is_shared=True) for name in shared]
        return location.directory, location.shared_directory, tuple(files)

    def write(self, checkpoint_id: int, shared: Sequence[str] = ()) -> CompletedCheckpoint:
        directory, pool, files = self.begin(checkpoint_id, shared)
        subtask = SubtaskState(0, SubtaskMetrics(), files, acknowledged_ms=5)
        checkpoint = CompletedCheckpoint(
            job_id=JOB_ID,
            job_name="count",
            entry_class="w:main",
            checkpoint_id=checkpoint_id,
            properties=CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION),
            trigger_timestamp=1,
            completion_timestamp=9,
            operators=(OperatorState("b" * 32, "count", VertexKind.STATEFUL, "q", 1, (subtask,)),),
            batches={"q": 41},
            location=directory,
            shared_location=pool,
        )
        self.storage.write_metadata(checkpoint)
        return checkpoint

    @property
    def checkpoints(self) -> set[str]:
        return {path.name for path in self.path.glob("chk-*")}

    @property
    def shared(self) -> set[str]:
        return {path.name for path in (self.path / "shared").iterdir()}

    def _put(self, location: str, *, is_shared: bool) -> StateFile:
        content = location.encode()
        (self.path / location).write_bytes(content)
        return StateFile(f"state/{location}", location, len(content), hashlib.sha256(content).hexdigest(), is_shared)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def sweep(job: Job, *retained: CompletedCheckpoint, unreadable: Sequence[int] = ()) -> Swept:
    return job.storage.sweep(retained, unreadable, lambda: True, first_id=1)


def test_an_incomplete_checkpoint_is_removed_with_its_shared_files(job: Job) -> None:
    retained = job.write(5, ["kept"])
    job.begin(6, ["kept", "orphan"])

    swept = sweep(job, retained)

    assert swept == Swept((6,), ("orphan",))
    assert (job.checkpoints, job.shared) == ({"chk-5"}, {"kept"})
    verify(retained.location, deep=True)
    assert sweep(job, retained) == Swept()


def test_a_subsumed_checkpoint_whose_removal_was_interrupted_is_removed(job: Job) -> None:
    job.write(3, ["old"])
    half = job.write(4, ["old"])
    retained = job.write(5, ["new"])
    Path(half.location, "_metadata").unlink()

    assert sweep(job, retained) == Swept((3, 4), ("old",))
    assert (job.checkpoints, job.shared) == ({"chk-5"}, {"new"})


def test_a_complete_checkpoint_that_is_not_yet_in_the_store_is_kept_with_its_files(job: Job) -> None:
    retained = job.write(5, ["a"])
    newer = job.write(6, ["b"])

    assert sweep(job, retained) == Swept()
    verify(newer.location, deep=True)


def test_without_a_retained_checkpoint_only_incomplete_ones_are_removed(job: Job) -> None:
    complete = job.write(1, ["a"])
    job.begin(2, ["b"])

    assert sweep(job) == Swept((2,), ("b",))
    verify(complete.location, deep=True)


def test_a_checkpoint_that_the_store_cannot_read_is_kept_with_all_shared_files(job: Job) -> None:
    unreadable = job.write(4, ["needed by nobody knows what"])
    retained = job.write(5, ["kept"])
    Path(unreadable.location, "_metadata").unlink()

    assert sweep(job, retained, unreadable=[4]) == Swept()
    assert job.shared == {"kept", "needed by nobody knows what"}


def test_damaged_metadata_is_not_a_reason_to_remove_anything_it_may_name(job: Job) -> None:
    damaged = job.write(4, ["its own"])
    retained = job.write(5, ["kept"])
    Path(damaged.location, "_metadata").write_text("{")

    assert sweep(job, retained) == Swept()
    assert job.checkpoints == {"chk-4", "chk-5"}


def test_the_sweep_keeps_savepoints_and_directories_with_other_names(job: Job, tmp_path: Path) -> None:
    location = job.storage.initialize_location(9, CheckpointKind.SAVEPOINT, str(job.path))
    Path(location.directory, "half").write_text("a savepoint that somebody takes into the job's own directory")
    for name in ("notes", "chk-x", "chk-7.old", "taskowned"):
        (job.path / name).mkdir(exist_ok=True)
        (job.path / name / "file").write_text("x")

    assert sweep(job, job.write(5)) == Swept()
    assert Path(location.directory, "half").exists()
    assert all((job.path / name / "file").exists() for name in ("notes", "chk-x", "chk-7.old", "taskowned"))


def test_a_job_manager_that_lost_the_job_removes_nothing(job: Job) -> None:
    retained = job.write(5)
    job.begin(6, ["orphan"])

    assert job.storage.sweep([retained], (), lambda: False, first_id=1) == Swept()
    assert (job.checkpoints, job.shared) == ({"chk-5", "chk-6"}, {"orphan"})


@pytest.mark.parametrize("crash_at", range(9))
def test_a_sweep_that_dies_anywhere_is_finished_by_the_next_one(job: Job, crash_at: int) -> None:
    job.write(3, ["old"])
    retained = job.write(5, ["kept"])
    job.begin(6, ["orphan"])
    job.begin(7, ["another"])

    with pytest.raises(Crash):
        job.with_files(CrashingFiles(crash_at)).sweep([retained], (), lambda: True, first_id=1)
    verify(retained.location, deep=True)
    sweep(job, retained)

    assert (job.checkpoints, job.shared) == ({"chk-5"}, {"kept"})
    verify(retained.location, deep=True)


def test_a_job_without_a_checkpoint_directory_has_no_orphans(tmp_path: Path) -> None:
    assert FileCheckpointStorage(str(tmp_path / "never made"), JOB_ID).sweep((), (), lambda: True) == Swept()
    assert FileCheckpointStorage(None, JOB_ID).sweep((), (), lambda: True) == Swept()


def test_empty_directories_are_removed(job: Job) -> None:
    retained = job.write(5, ["kept"])

    job.storage.remove_empty_directories()
    assert {path.name for path in job.path.iterdir()} == {"chk-5", "shared", "taskowned"}

    (job.path / "shared" / "kept").unlink()
    LocalFiles().remove_tree(retained.location)
    job.storage.remove_empty_directories()
    assert not job.path.exists()
    job.storage.remove_empty_directories()


def test_a_checkpoint_of_another_job_is_kept_at_any_age(job: Job) -> None:
    """The job was restored from this unclaimed checkpoint in its own directory."""
    unclaimed = job.write(3, ["old"])
    retained = job.write(5, ["new"])

    assert job.storage.sweep([retained], (), lambda: True, unclaimed_ids=(3,), first_id=1) == Swept()

    verify(unclaimed.location, deep=True)


def test_sweep_removes_only_claimed_snapshots_of_earlier_runs(job: Job) -> None:
    """The job started again with the same ID. A crash interrupted the removal of its claimed checkpoint."""
    older = job.write(2, ["older"])
    job.write(3, ["claimed"])
    retained = job.write(5, ["kept"])

    assert job.storage.sweep([retained], (), lambda: True, claimed_ids=(3,), first_id=4) == Swept((3,), ("claimed",))

    verify(older.location, deep=True)


def test_a_sweep_without_the_first_id_keeps_every_complete_checkpoint(job: Job) -> None:
    """All of them may belong to an earlier run of the job, because the attempt record does not have the first ID."""
    earlier = job.write(3, ("a",))
    job.begin(4, ("b",))
    retained = job.write(7)

    assert job.storage.sweep([retained], (), lambda: True) == Swept((4,), ("b",))
    assert verify(earlier.location, deep=True) == earlier
    assert job.storage.sweep([retained], (), lambda: True, claimed_ids=(3,)) == Swept((3,), ("a",))


def test_claimed_snapshot_is_kept_until_a_newer_one_is_stored(job: Job) -> None:
    claimed = job.write(3, ["claimed"])

    assert job.storage.sweep([], (), lambda: True, claimed_ids=(3,), first_id=4) == Swept()
    assert job.storage.sweep([claimed], (), lambda: True, claimed_ids=(3,), first_id=4) == Swept()

    verify(claimed.location, deep=True)


def test_complete_checkpoints_missing_in_the_store_are_found(job: Job) -> None:
    known, unknown = job.write(1), job.write(2)
    job.begin(3)
    broken = job.write(4)
    Path(broken.location, "_metadata").write_text("{}")

    assert job.storage.found([known.checkpoint_id]) == [unknown]
