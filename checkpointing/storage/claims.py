"""Claims on snapshots: a job that is restored in mode CLAIM owns the snapshot, and removes it when it is unused.

A claim is a file next to the snapshot's `_metadata`, named after the job: `_claimed-<job id>`. If two jobs claim one
snapshot at once, each sees the other's file, and both withdraw. The file is removed when the job ends without removing
the snapshot.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from checkpointing.storage.errors import MetadataMissing, SnapshotUnusable, StorageError, UnsafeLocation
from checkpointing.storage.files import Files
from checkpointing.storage.found import checkpoint_ids
from checkpointing.storage.layout import METADATA, SHARED, TASK_OWNED, checkpoint_directory, is_snapshot_directory
from checkpointing.storage.locations import canonical, is_local, name, parent
from checkpointing.storage.opening import files_for
from checkpointing.storage.verification import read_metadata

logger = logging.getLogger(__name__)

_CLAIM = "_claimed-"


class SnapshotClaimed(StorageError):
    """Another job has claimed the snapshot."""

    def __init__(self, directory: str, job_id: str) -> None:
        super().__init__(
            f"{directory} is claimed by job {job_id}, which deletes it when it no longer needs it. "
            f"If that job no longer exists, delete {directory}/{_CLAIM}{job_id}"
        )
        self.job_id = job_id


class SnapshotNotWritable(StorageError):
    def __init__(self, directory: str, problem: OSError) -> None:
        super().__init__(
            f"{directory} cannot be claimed, because it cannot be written to ({problem}); "
            "claim mode NO_CLAIM leaves it to its owner"
        )


class JobClaims:
    """The claims of one job. Snapshots in `job_directory`, its checkpoint directory, belong to it without a claim.

    All methods block and raise OSError. `files` replaces what a location would open.
    """

    def __init__(self, job_id: str, job_directory: str, files: Files | None = None) -> None:
        self._job_id = job_id
        self._job_directory = job_directory
        self._given_files = files

    def is_outside_job_directory(self, directory: str) -> bool:
        """Return whether the snapshot is outside of the job's own checkpoint directory, after following links."""
        return parent(_real(directory)) != _real(self._job_directory)

    def claim(self, directory: str) -> bool:
        """Claim the snapshot. Return False if this job already has it. Raise SnapshotClaimed or SnapshotNotWritable."""
        directory, files = self._opened(directory)
        check_unclaimed(directory, files, but_by=self._job_id)
        mine = self._file(directory)
        if name(mine) in files.names(directory):
            return False
        try:
            files.write_durably(mine, json.dumps({"job_id": self._job_id}).encode())
        except OSError as error:
            raise SnapshotNotWritable(directory, error) from error
        try:
            check_unclaimed(directory, files, but_by=self._job_id)
        except SnapshotClaimed:
            files.remove_file(mine)
            raise
        return True

    def has(self, directory: str) -> bool:
        directory, files = self._opened(directory)
        return name(self._file(directory)) in files.names(directory)

    def give_up(self, directory: str) -> None:
        """Return the snapshot to its owner. Do nothing if it is not claimed by this job."""
        if self.has(directory):
            directory, files = self._opened(directory)
            files.remove_file(self._file(directory))

    def finish_discarding(self, directory: str) -> bool:
        """Finish the removal of a snapshot that the job has dropped. Return False if it is not, or no longer, claimed.

        A half-removed snapshot has no `_metadata`, and perhaps no claim either.
        """
        directory, files = self._opened(directory)
        if METADATA in files.names(directory) and not self.has(directory):
            return False
        discard_claimed(directory, files)
        return True

    def _opened(self, directory: str) -> tuple[str, Files]:
        directory = canonical(directory)
        return directory, self._given_files or files_for(directory)

    def _file(self, directory: str) -> str:
        return f"{directory}/{_CLAIM}{self._job_id}"


def _real(location: str) -> str:
    location = canonical(location)
    return str(Path(location).resolve()) if is_local(location) else location


def check_unclaimed(directory: str, files: Files | None = None, *, but_by: str = "") -> None:
    """Raise SnapshotClaimed if a job other than `but_by` has claimed the snapshot."""
    directory = canonical(directory)
    for entry in sorted((files or files_for(directory)).names(directory)):
        if entry.startswith(_CLAIM) and entry != f"{_CLAIM}{but_by}":
            raise SnapshotClaimed(directory, entry.removeprefix(_CLAIM))


def discard_directory(directory: str, files: Files) -> None:
    """Remove `_metadata` first, so that a half-removed snapshot never looks complete."""
    directory = canonical(directory)
    if not is_snapshot_directory(directory):
        raise UnsafeLocation(f"{directory} is not the directory of a checkpoint or savepoint")
    files.remove_file(f"{directory}/{METADATA}")
    files.remove_tree(directory)


def discard_claimed(directory: str, files: Files) -> None:
    """Remove the snapshot. For a checkpoint also remove shared files that only it used.

    May be repeated, and continues after a crash.
    """
    directory = canonical(directory)
    discard_directory(directory, files)
    if name(directory).startswith("chk-"):
        _remove_unreferenced(parent(directory), files)


def _remove_unreferenced(job_directory: str, files: Files) -> None:
    """Remove the files to which no checkpoint in the old job's directory refers.

    As long as one of these checkpoints cannot be read, or is not complete, everything stays: it may need any of the
    files.
    """
    try:
        ids = checkpoint_ids(job_directory, files)
        others = [read_metadata(checkpoint_directory(job_directory, other), files) for other in ids]
    except MetadataMissing as error:
        logger.info("the shared files in %s stay: %s", job_directory, error)
        return
    except SnapshotUnusable as error:
        logger.warning("the shared files in %s stay, for a checkpoint there cannot be read: %s", job_directory, error)
        return
    needed = {file.location for checkpoint in others for file in checkpoint.files if file.shared}
    for entry in files.names(f"{job_directory}/{SHARED}"):
        if f"{SHARED}/{entry}" not in needed:
            files.remove_file(f"{job_directory}/{SHARED}/{entry}")
    if others:
        return
    for empty in (f"{job_directory}/{SHARED}", f"{job_directory}/{TASK_OWNED}", job_directory):
        files.remove_empty_directory(empty)
