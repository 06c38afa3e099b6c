"""Removing what job managers and drivers that died left in a job's checkpoint directory: Flink leaves it for ever.

An orphan is, while no driver of the job lives, or below the ids that a living one may be writing:

1. `chk-N` without `_metadata` that the store does not know: never completed, or half removed.
2. `chk-N` with `_metadata`, older than the newest retained one and not in the store: subsumed, its removal cut short.
   One that is newer stays: it is complete, and perhaps only its entry in the store was lost. So does an unclaimed one,
   and one of an earlier job that had this id, unless this job has claimed it.
3. A shared file that no checkpoint left in the directory refers to. When one of them cannot be read, all files stay.

Savepoints lie elsewhere, and a directory of any other name is never looked into.
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
    """What was removed: checkpoint ids, and shared files by name.

    `unused`: shared files that were not, for a driver lives, and what it is writing may need them.
    """

    checkpoint_ids: tuple[int, ...] = ()
    shared_files: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        ids = ", ".join(map(str, self.checkpoint_ids)) or "none"
        return f"orphaned checkpoints: {ids}; orphaned shared files: {len(self.shared_files)}"


class OrphanSweep:
    """`unreadable_ids`: checkpoints that the store knows and nobody can read. They stay, with whatever they may need.
    `unclaimed_ids`: checkpoints that are somebody else's, though they lie here. `below`: a driver lives and may be
    writing those with this id and higher ones. `first_id`: complete ones below it are of an earlier life of the job,
    and stay but for the `claimed_ids`; when it is not known, every complete one may be of an earlier life.

    `may_remove` is asked right before each removal: whoever lost the job meanwhile must touch nothing.
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
        """Blocking; OSError. Repeated after a crash it goes on where the last one ended."""
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
        # First the metadata: a sweep that is cut short must not leave what looks like a checkpoint.
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
