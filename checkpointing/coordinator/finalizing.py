"""The last steps of a fully acknowledged checkpoint: metadata made durable, then the store.

Until the store takes the checkpoint it may be aborted.
"""

from __future__ import annotations

from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import AddCheckpoint, Added, CancelTimer, ExpiryTimer, WriteMetadata
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.pending import PendingCheckpoint, PendingPhase
from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.model.checkpoint import CompletedCheckpoint


class CheckpointFinalizer:
    def __init__(self, context: CoordinatorContext, endings: CheckpointEndings) -> None:
        self._job = context.job
        self._outbox = context.outbox
        self._endings = endings

    def finalize(self, pending: PendingCheckpoint, completion_timestamp: int) -> None:
        self._outbox.do(WriteMetadata(pending.finalize(self._job, completion_timestamp)))

    def written(self, step: WriteMetadata, metadata_size: int) -> None:
        checkpoint, pending = step.checkpoint, self._unless_aborted(step.checkpoint)
        if pending is None:
            return
        pending.metadata_written(checkpoint, metadata_size)
        if checkpoint.properties.is_savepoint:
            self._begin_adding(pending)
            self._endings.completed(pending, checkpoint, None)
        else:
            self._add_next()

    def not_written(self, step: WriteMetadata, error: Exception) -> None:
        pending = self._unless_aborted(step.checkpoint)
        if pending is not None:
            self._endings.finalize_failed(pending, error)

    def added(self, step: AddCheckpoint, added: Added) -> None:
        self._endings.completed(self._endings.pending[step.checkpoint.checkpoint_id], step.checkpoint, added)
        self._add_next()

    def not_added(self, step: AddCheckpoint, error: Exception) -> None:
        self._endings.finalize_failed(self._endings.pending[step.checkpoint.checkpoint_id], error)
        self._add_next()

    def _unless_aborted(self, checkpoint: CompletedCheckpoint) -> PendingCheckpoint | None:
        """Return the pending checkpoint. If it was aborted during the write, discard its files, now unused."""
        pending = self._endings.pending.get(checkpoint.checkpoint_id)
        if pending is None:
            location = CheckpointLocation(checkpoint.location, checkpoint.shared_location)
            self._endings.discard_files(checkpoint.checkpoint_id, location)
        return pending

    def _add_next(self) -> None:
        """One at a time and the oldest first, so that the store's order is that of the ids."""
        pending = self._endings.pending
        if any(other.phase is PendingPhase.ADDING for other in pending.values()):
            return
        for checkpoint_id in sorted(pending):
            if (checkpoint := pending[checkpoint_id].written) is not None:
                self._begin_adding(pending[checkpoint_id])
                self._outbox.do(AddCheckpoint(checkpoint, tuple(self._endings.files_kept)))
                return

    def _begin_adding(self, pending: PendingCheckpoint) -> None:
        pending.phase = PendingPhase.ADDING
        self._outbox.put(CancelTimer(ExpiryTimer(pending.checkpoint_id)))
