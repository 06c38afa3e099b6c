"""Removing what no checkpoint needs any more: Flink's CheckpointsCleaner, with shared files kept by content.

A checkpoint's own directory is removed at once. A shared file that lost its last reference is only *condemned*: a
pending checkpoint may have seen it in the pool and may be about to refer to it again. Condemned files are removed when
no checkpoint that uses the pool is pending, and no new one is triggered until the removal is over; a file that is
acknowledged again before that is reprieved.

A removal that fails is tried again, less and less often, and once more at the end; then it is reported. It does not
count as cleaning meanwhile, lest a broken disk stop all checkpoints.
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

    Every known checkpoint has its own bit, and a file's users are the bits set: a number, small as long as few
    checkpoints are known, so that a file costs an entry in one table and nothing else in memory. An acknowledgement
    only notes its files; they are looked up one after the other when a checkpoint is removed.
    """

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._used_by: dict[int, list[StateFile]] = {}
        self._bits: dict[int, int] = {}
        self._noted: dict[int, list[StateFile]] = {}

    def register(self, checkpoint_id: int, files: Sequence[StateFile]) -> None:
        """Count that `checkpoint_id` needs the shared ones of `files`; once per file, however often it is said."""
        noted = self._noted.get(checkpoint_id)
        if noted is None:
            noted = self._noted[checkpoint_id] = []
        for file in files:
            if file.shared:
                noted.append(file)

    def release(self, checkpoint_id: int) -> Sequence[StateFile]:
        """Forget `checkpoint_id`; the files that no other checkpoint needs. Nothing when it is not known."""
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
        bit = (taken + 1) & ~taken  # the lowest that is free
        self._bits[checkpoint_id] = bit
        self._used_by[checkpoint_id] = []
        return bit


class CheckpointsCleaner:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._registry = ReferenceCountingRegistry()
        self._num_discarding = 0
        self._num_waiting = 0
        self._condemned: dict[str, StateFile] = {}
        self._shared_failures = 0
        self._waits_to_retry_shared = False
        self._failed: dict[str, RemoveSnapshot] = {}
        self._is_ending = False
        self.is_removing_shared = False
        """While True no checkpoint may be triggered: it could rely on a file that is being removed."""

    @property
    def num_cleaning(self) -> int:
        """Checkpoints whose cleaning has not ended: the back-pressure of Flink's decider."""
        return self._num_discarding + (0 if self._waits_to_retry_shared else self._num_waiting)

    @property
    def num_removals(self) -> int:
        """Return how many removals are under way."""
        return self._num_discarding + self.is_removing_shared

    @property
    def can_remove_condemned(self) -> bool:
        return bool(self._condemned) and not self.is_removing_shared and not self._waits_to_retry_shared

    def try_for_the_last_time(self) -> None:
        """Repeat what failed at once; from now on a removal that fails is reported, not tried again."""
        self._is_ending = True
        self._waits_to_retry_shared = False
        self._outbox.put(CancelTimer(JobTimer.SHARED_REMOVAL))
        for removal in list(self._failed.values()):
            self._remove(removal)

    def register_shared(self, checkpoint_id: int, files: Sequence[StateFile]) -> None:
        """Count the references of `checkpoint_id` to its shared files; a condemned one is reprieved."""
        self._registry.register(checkpoint_id, files)
        if self._condemned:
            for file in files:
                if file.shared:
                    self._condemned.pop(file.location, None)

    def release_shared(self, checkpoint_id: int) -> None:
        """Drop the references of `checkpoint_id`; what nothing refers to any more is condemned."""
        unreferenced = self._registry.release(checkpoint_id)
        if unreferenced:
            self._num_waiting += 1
            self._condemned.update((file.location, file) for file in unreferenced)

    def discard_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Remove what is the job's own, claimed or made by it."""
        location = CheckpointLocation(checkpoint.location, checkpoint.shared_location)
        if checkpoint.properties.claimed:
            self._remove(RemoveSnapshot(location, is_claimed=True))
        else:
            self.discard(checkpoint.checkpoint_id, location)

    def discard(self, checkpoint_id: int, location: CheckpointLocation | None) -> None:
        """Remove the checkpoint's own directory, if it has one yet, and drop its references to shared files."""
        self.release_shared(checkpoint_id)
        if location is not None:
            self.discard_location(location)

    def discard_location(self, location: CheckpointLocation) -> None:
        self._remove(RemoveSnapshot(location))

    def remove_condemned(self) -> None:
        """Remove all condemned files. Only when no checkpoint that uses the shared pool is pending."""
        if self.can_remove_condemned:
            files = tuple(self._condemned.values())
            self._condemned.clear()
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
            self._condemned.setdefault(file.location, file)

    def retry_directory(self, directory: str) -> None:
        if (removal := self._failed.get(directory)) is not None:
            self._remove(replace(removal, failures=removal.failures + 1))

    def retry_shared(self) -> None:
        """Let the condemned files be removed as soon as that is safe."""
        self._waits_to_retry_shared = False

    def _remove(self, removal: RemoveSnapshot) -> None:
        directory = removal.location.directory
        if self._failed.pop(directory, None) is not None:
            self._outbox.put(CancelTimer(RemovalTimer(directory)))
        self._num_discarding += 1
        self._outbox.do(removal)
