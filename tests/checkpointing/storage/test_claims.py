"""Claiming a snapshot, giving it back, and removing it with the files that only it needs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from checkpointing.model.messages import CheckpointKind
from checkpointing.storage import UnsafeLocation
from checkpointing.storage.claims import (
    JobClaims,
    SnapshotClaimed,
    SnapshotNotWritable,
    check_unclaimed,
    discard_claimed,
)
from checkpointing.storage.files import LocalFiles
from tests.checkpointing.storage.test_orphan_sweep import Crash, CrashingFiles, Job

MINE, OTHER = "a" * 32, "b" * 32
FILES = LocalFiles()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return the job whose checkpoints are claimed."""
    return Job(tmp_path / "checkpoints")


def claims_of(job_id: str, tmp_path: Path, files: LocalFiles | None = None) -> JobClaims:
    return JobClaims(job_id, str(tmp_path / "checkpoints" / job_id), files)


def test_a_claim_may_be_repeated_and_is_given_up_once(job: Job, tmp_path: Path) -> None:
    directory = job.write(1).location
    claims = claims_of(MINE, tmp_path)

    assert claims.claim(directory) is True
    assert claims.claim(directory) is False
    claims.give_up(directory)
    claims.give_up(directory)

    check_unclaimed(directory)


def test_the_second_job_is_refused_and_told_by_whom(job: Job, tmp_path: Path) -> None:
    directory = job.write(1).location
    claims_of(MINE, tmp_path).claim(directory)

    with pytest.raises(SnapshotClaimed, match=f"{directory} is claimed by job {MINE}, .*delete {directory}/_claimed-"):
        claims_of(OTHER, tmp_path).claim(directory)

    assert claims_of(MINE, tmp_path).has(directory)
    assert not claims_of(OTHER, tmp_path).has(directory)


class MeanwhileClaimed(LocalFiles):
    """Local files in which another job writes its claim at the same moment."""

    def write_durably(self, path: str, content: bytes) -> None:
        LocalFiles().write_durably(path.replace(MINE, OTHER), content)
        super().write_durably(path, content)


def test_concurrent_claim_of_another_job_wins_or_both_fail(job: Job, tmp_path: Path) -> None:
    directory = job.write(1).location

    with pytest.raises(SnapshotClaimed, match=OTHER):
        claims_of(MINE, tmp_path, MeanwhileClaimed()).claim(directory)

    assert not claims_of(MINE, tmp_path).has(directory)


class ReadOnlyFiles(LocalFiles):
    def write_durably(self, path: str, content: bytes) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)


def test_a_read_only_snapshot_cannot_be_claimed(job: Job, tmp_path: Path) -> None:
    directory = job.write(1).location

    with pytest.raises(SnapshotNotWritable, match=r"cannot be written to .*Read-only file system.*NO_CLAIM"):
        claims_of(MINE, tmp_path, ReadOnlyFiles()).claim(directory)


def test_snapshot_in_the_jobs_own_directory_needs_no_claim(job: Job, tmp_path: Path) -> None:
    own = job.write(1).location
    assert not claims_of(Path(own).parent.name, tmp_path).is_outside_job_directory(f"file:{own}")
    assert claims_of(MINE, tmp_path).is_outside_job_directory(own)
    (tmp_path / "link").symlink_to(tmp_path / "checkpoints")
    assert not JobClaims(Path(own).parent.name, f"{tmp_path}/link/{Path(own).parent.name}").is_outside_job_directory(
        own
    )


@pytest.mark.parametrize("crash_at", range(4))
def test_from_each_point_of_a_crash_the_removal_is_ended(job: Job, tmp_path: Path, crash_at: int) -> None:
    kept = job.write(1, ["a", "both"])
    gone = job.write(2, ["b", "both"])
    claims_of(MINE, tmp_path).claim(gone.location)

    try:
        discard_claimed(gone.location, CrashingFiles(crash_at))
    except Crash:
        pass
    else:
        assert crash_at == 3
    assert claims_of(MINE, tmp_path).finish_discarding(gone.location)

    assert {path.name for path in job.path.iterdir()} == {"chk-1", "shared", "taskowned"}
    assert job.shared == {"a", "both"}
    job.storage.read_metadata(kept.location)


def test_a_snapshot_that_was_given_back_is_not_removed_by_who_had_it(job: Job, tmp_path: Path) -> None:
    checkpoint = job.write(1)
    claims_of(OTHER, tmp_path).claim(checkpoint.location)

    assert not claims_of(MINE, tmp_path).finish_discarding(checkpoint.location)

    assert job.storage.read_metadata(checkpoint.location) == checkpoint


def test_while_another_checkpoint_is_being_written_the_pool_stays(job: Job) -> None:
    gone = job.write(1, ["a"])
    job.begin(2, ["a"])

    discard_claimed(gone.location, FILES)

    assert job.shared == {"a"}
    assert {path.name for path in job.path.iterdir()} == {"chk-2", "shared", "taskowned"}


def test_with_the_last_checkpoint_the_old_jobs_directory_goes(job: Job) -> None:
    discard_claimed(job.write(1, ["a"]).location, FILES)
    assert not job.path.exists()


def test_only_a_snapshots_directory_is_removed(tmp_path: Path) -> None:
    with pytest.raises(UnsafeLocation):
        discard_claimed(str(tmp_path), FILES)


def test_disposing_a_claimed_savepoint_removes_only_its_directory(job: Job, tmp_path: Path) -> None:
    location = job.storage.initialize_location(7, CheckpointKind.SAVEPOINT, str(tmp_path / "savepoints"))
    beside = tmp_path / "savepoints" / "shared" / "x"
    beside.parent.mkdir()
    beside.write_text("x")

    discard_claimed(location.directory, FILES)

    assert not Path(location.directory).exists()
    assert beside.exists()
