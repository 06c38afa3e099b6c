"""Removes files that no checkpoint needs any more: Flink's CheckpointsCleaner, with shared files named by content.

A checkpoint's own directory is removed at once. A shared file without references is only marked for removal: a pending
checkpoint may have seen it in the pool and may be about to refer to it again. Marked files are removed when no
checkpoint that uses the pool is pending, and no new one is triggered until the removal ends. A file that is
acknowledged again before that is no longer marked.

A failed removal is retried at growing intervals, and once more at the end; then it is reported. Meanwhile it does not
count as cleaning, so that a broken disk does not stop all checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from checkpointing.coordinator.context import Outbox
from checkpointing.coordinator.effects import (
    CancelTimer,
    JobTimer,
    RemovalTimer,
    RemoveShared,
    RemoveSnapshot,
    ReportLeftBehind,
    SetTimer,
)
from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile

logger = logging.getLogger(__name__)

RETRIES_AFTER_S = (1.0, 4.0, 15.0, 60.0, 240.0, 900.0)


class ReferenceCountingRegistry:
    """Flink's SharedStateRegistry of one job. It is rebuilt from the retained checkpoints after a fail-over.

    Flink remembers the last checkpoint that used a file. This counts references, because checkpoints here may be
    discarded in any order (an aborted one before an older pending one).

    Every known checkpoint has its own bit, and the set bits of a number are a file's users. With few known checkpoints
    the number is small, so a file costs one table entry in memory. An acknowledgement only stores its list of files;
    they are counted when a checkpoint is removed.
    """

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._used_by: dict[int, list[StateFile]] = {}
        self._bits: dict[int, int] = {}
        self._noted: dict[int, list[StateFile]] = {}

    def register(self, checkpoint_id: int, files: Sequence[StateFile]) -> None:
        """Record that `checkpoint_id` needs the shared files among `files`.

        Each file counts once, even if it is repeated.
        """
        noted = self._noted.get(checkpoint_id)
        if noted is None:
            noted = self._noted[checkpoint_id] = []
        for file in files:
            if file.shared:
                noted.append(file)

    def release(self, checkpoint_id: int) -> Sequence[StateFile]:
        """Forget `checkpoint_id`. Return the files that no other checkpoint needs; none if the ID is unknown."""
        self._count_noted()
        bit = self._bits.pop(checkpoint_id, 0)
        unreferenced = []
        for file in self._used_by.pop(checkpoint_id, ()):
            users = self._users[file.location] ^ bit
            if users:
                self._users[file.location] = users
            else:
                del self._users[file.location]
                unreferenced.append(file)
        return unreferenced

    def users_of(self, location: str) -> frozenset[int]:
        self._count_noted()
        users = self._users.get(location, 0)
        return frozenset(checkpoint_id for checkpoint_id, bit in self._bits.items() if users & bit)

    def _count_noted(self) -> None:
        noted, self._noted = self._noted, {}
        for checkpoint_id, files in noted.items():
            bit = self._bits.get(checkpoint_id) or self._new_bit(checkpoint_id)
            used = self._used_by[checkpoint_id]
            for file in files:
                users = self._users.get(file.location, 0)
                if not users & bit:
                    self._users[file.location] = users | bit
                    used.append(file)

    def _new_bit(self, checkpoint_id: int) -> int:
        taken = sum(self._bits.values())
        bit = (taken + 1) & ~taken  # the lowest free bit
        self._bits[checkpoint_id] = bit
        self._used_by[checkpoint_id] = []
        return bit


class CheckpointsCleaner:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._registry = ReferenceCountingRegistry()
        self._num_discarding = 0
        self._num_waiting = 0
        self._unreferenced: dict[str, StateFile] = {}
        self._shared_failures = 0
        self._waits_to_retry_shared = False
        self._failed: dict[str, RemoveSnapshot] = {}
        self._is_ending = False
        self.is_removing_shared = False
        """While True, no checkpoint may be triggered, because it could need a file that is being removed."""

    @property
    def num_cleaning(self) -> int:
        """Return how many checkpoints are being cleaned. As in Flink, too many of them delay new checkpoints."""
        return self._num_discarding + (0 if self._waits_to_retry_shared else self._num_waiting)

    @property
    def num_removals(self) -> int:
        """Return how many removals are running."""
        return self._num_discarding + self.is_removing_shared

    @property
    def can_remove_unreferenced(self) -> bool:
        return bool(self._unreferenced) and not self.is_removing_shared and not self._waits_to_retry_shared

    def retry_finally(self) -> None:
        """Retry all failed removals now. From now on a failed removal is reported and not retried."""
        self._is_ending = True
        self._waits_to_retry_shared = False
        self._outbox.put(CancelTimer(JobTimer.SHARED_REMOVAL))
        for removal in list(self._failed.values()):
            self._remove(removal)

    def register_shared(self, checkpoint_id: int, files: Sequence[StateFile]) -> None:
        """Count the references of `checkpoint_id` to its shared files, and keep those files."""
        self._registry.register(checkpoint_id, files)
        if self._unreferenced:
            for file in files:
                if file.shared:
                    self._unreferenced.pop(file.location, None)

    def release_shared(self, checkpoint_id: int) -> None:
        """Drop the references of `checkpoint_id`. Mark files without any reference for removal."""
        unreferenced = self._registry.release(checkpoint_id)
        if unreferenced:
            self._num_waiting += 1
            self._unreferenced.update((file.location, file) for file in unreferenced)

    def discard_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Remove a checkpoint that belongs to the job, because the job made or claimed it."""
        location = CheckpointLocation(checkpoint.location, checkpoint.shared_location)
        if checkpoint.properties.claimed:
            self._remove(RemoveSnapshot(location, is_claimed=True))
        else:
            self.discard(checkpoint.checkpoint_id, location)

    def discard(self, checkpoint_id: int, location: CheckpointLocation | None) -> None:
        """Remove the checkpoint's own directory, if it exists, and drop its references to shared files."""
        self.release_shared(checkpoint_id)
        if location is not None:
            self.discard_location(location)

    def discard_location(self, location: CheckpointLocation) -> None:
        self._remove(RemoveSnapshot(location))

    def remove_unreferenced(self) -> None:
        """Remove all unreferenced files. Call it only while no checkpoint that uses the shared pool is pending."""
        if self.can_remove_unreferenced:
            files = tuple(self._unreferenced.values())
            self._unreferenced.clear()
            self._num_waiting = 0
            self.is_removing_shared = True
            self._outbox.do(RemoveShared(files))

    def directory_removed(self, removal: RemoveSnapshot, _: None) -> None:
        self._num_discarding -= 1

    def directory_not_removed(self, removal: RemoveSnapshot, error: Exception) -> None:
        self._num_discarding -= 1
        directory = removal.location.directory
        self._failed[directory] = removal
        if self._is_ending or removal.failures >= len(RETRIES_AFTER_S):
            self._outbox.put(ReportLeftBehind(f"The checkpoint directory {directory}", error))
        else:
            logger.warning("checkpoint directory %s could not be removed, to be tried again: %s", directory, error)
            self._outbox.put(SetTimer(RemovalTimer(directory), RETRIES_AFTER_S[removal.failures]))

    def shared_removed(self, removal: RemoveShared, _: None) -> None:
        self.is_removing_shared = False
        self._shared_failures = 0

    def shared_not_removed(self, removal: RemoveShared, error: Exception) -> None:
        self.is_removing_shared = False
        if self._is_ending:
            self._outbox.put(ReportLeftBehind(f"{len(removal.files)} files of the shared pool", error))
            return
        logger.warning("%d shared files could not be removed, to be tried again: %s", len(removal.files), error)
        delay_s = RETRIES_AFTER_S[min(self._shared_failures, len(RETRIES_AFTER_S) - 1)]
        self._shared_failures += 1
        self._waits_to_retry_shared = True
        self._outbox.put(SetTimer(JobTimer.SHARED_REMOVAL, delay_s))
        for file in removal.files:
            self._unreferenced.setdefault(file.location, file)

    def retry_directory(self, directory: str) -> None:
        if (removal := self._failed.get(directory)) is not None:
            self._remove(replace(removal, failures=removal.failures + 1))

    def retry_shared(self) -> None:
        """Allow the removal of the unreferenced files as soon as it is safe."""
        self._waits_to_retry_shared = False

    def _remove(self, removal: RemoveSnapshot) -> None:
        directory = removal.location.directory
        if self._failed.pop(directory, None) is not None:
            self._outbox.put(CancelTimer(RemovalTimer(directory)))
        self._num_discarding += 1
        self._outbox.do(removal)
