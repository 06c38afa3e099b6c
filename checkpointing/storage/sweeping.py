"""Removes files that dead job managers and drivers left in a job's checkpoint directory. Flink keeps them forever.

While no driver of the job is running, or below the IDs that a running one may be writing, these are orphans:

1. `chk-N` without `_metadata` that the store does not know: never completed, or half removed.
2. `chk-N` with `_metadata`, older than the newest retained one and not in the store: subsumed, but its removal was
   interrupted. A newer one stays: it is complete, and perhaps only its entry in the store was lost. An unclaimed one
   also stays, and so does one of an earlier job with this ID, unless this job has claimed it.
3. A shared file to which no checkpoint in the directory refers. If one of them cannot be read, all files stay.

Savepoints are elsewhere, and directories with other names are never read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.storage.errors import MetadataMissing, SnapshotUnusable
from checkpointing.storage.files import Files
from checkpointing.storage.found import checkpoint_ids
from checkpointing.storage.layout import METADATA, SHARED, checkpoint_directory
from checkpointing.storage.verification import read_metadata


@dataclass(frozen=True)
class Swept:
    """The removed files: checkpoint IDs, and shared files by name.

    `unused`: shared files that stay because a driver is running and may need them.
    """

    checkpoint_ids: tuple[int, ...] = ()
    shared_files: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        ids = ", ".join(map(str, self.checkpoint_ids)) or "none"
        return f"orphaned checkpoints: {ids}; orphaned shared files: {len(self.shared_files)}"


class OrphanSweep:
    """Removes the orphans of one job.

    `unreadable_ids`: checkpoints in the store that cannot be read. They stay, with all files that they may need.
    `unclaimed_ids`: checkpoints here that belong to others. `below`: a driver is running and may be writing checkpoints
    with this ID or higher ones. `first_id`: complete checkpoints below it belong to an earlier run of the job and
    stay, except the `claimed_ids`. If it is unknown, every complete one may belong to an earlier run.

    `may_remove` is called right before each removal, because a process that no longer leads the job must change
    nothing.
    """

    def __init__(
        self,
        job_directory: str,
        files: Files,
        retained: Sequence[CompletedCheckpoint],
        unreadable_ids: Collection[int],
        may_remove: Callable[[], bool],
        unclaimed_ids: Collection[int] = (),
        claimed_ids: Collection[int] = (),
        *,
        below: int | None = None,
        first_id: int | None = None,
    ) -> None:
        self._below = below
        self._first_id = first_id
        self._job_directory = job_directory
        self._files = files
        self._retained = {checkpoint.checkpoint_id: checkpoint for checkpoint in retained}
        self._unreadable_ids = unreadable_ids
        self._may_remove = may_remove
        self._unclaimed_ids = unclaimed_ids
        self._claimed_ids = claimed_ids
        self._kept: list[CompletedCheckpoint] = list(retained)
        self._knows_all = not unreadable_ids

    def run(self) -> Swept:
        """Remove the orphans. Blocks. Raise OSError. After a crash, a repeated run continues."""
        found = checkpoint_ids(self._job_directory, self._files)
        ids = tuple(checkpoint_id for checkpoint_id in found if self._swept(checkpoint_id))
        unused = self._unused() if self._knows_all else ()
        if self._below is not None:
            return Swept(ids, unused=unused)
        return Swept(ids, tuple(name for name in unused if self._removed(name)))

    def _swept(self, checkpoint_id: int) -> bool:
        if checkpoint_id in self._retained or checkpoint_id in self._unreadable_ids:
            return False
        directory = checkpoint_directory(self._job_directory, checkpoint_id)
        is_orphan = self._is_orphan(directory, checkpoint_id)
        is_in_the_making = self._below is not None and checkpoint_id >= self._below
        if not is_orphan or is_in_the_making or not self._may_remove():
            return False
        # Remove the metadata first, because an interrupted sweep must not leave a directory that looks like a
        # checkpoint.
        self._files.remove_file(f"{directory}/{METADATA}")
        self._files.remove_tree(directory)
        return True

    def _is_orphan(self, directory: str, checkpoint_id: int) -> bool:
        try:
            checkpoint = read_metadata(directory, self._files)
        except MetadataMissing:
            return True
        except SnapshotUnusable:
            self._knows_all = False
            return False
        is_new = self._first_id is not None and checkpoint_id >= self._first_id
        is_of_this_life = is_new or checkpoint_id in self._claimed_ids
        is_ours = is_of_this_life and checkpoint_id not in self._unclaimed_ids
        is_subsumed = is_ours and checkpoint_id < max(self._retained, default=0)
        if is_subsumed and checkpoint.properties.discard_on_subsumed:
            return True
        self._kept.append(checkpoint)
        return False

    def _unused(self) -> tuple[str, ...]:
        needed = {file.location for checkpoint in self._kept for file in checkpoint.files if file.shared}
        names = sorted(self._files.names(f"{self._job_directory}/{SHARED}"))
        return tuple(name for name in names if f"{SHARED}/{name}" not in needed)

    def _removed(self, name: str) -> bool:
        if not self._may_remove():
            return False
        self._files.remove_file(f"{self._job_directory}/{SHARED}/{name}")
        return True
