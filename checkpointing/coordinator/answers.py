"""Handles the tasks' answers to a trigger, and the last steps of a checkpoint that all tasks have acknowledged.

A subtask acknowledges its part, declines it, or reports what it waits for.
"""

from __future__ import annotations

import logging

from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import AddCheckpoint, Added, CancelTimer, ExpiryTimer, WriteMetadata
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.pending import AcknowledgeOutcome, PendingCheckpoint, PendingPhase
from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint, DelayCheckpoint

logger = logging.getLogger(__name__)


class CheckpointFinalizer:
    """Writes the metadata, then adds the checkpoint to the store. The checkpoint may be aborted until it is added."""

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
        """Return the pending checkpoint. If it was aborted during the write, discard its files."""
        pending = self._endings.pending.get(checkpoint.checkpoint_id)
        if pending is None:
            location = CheckpointLocation(checkpoint.location, checkpoint.shared_location)
            self._endings.discard_files(checkpoint.checkpoint_id, location)
        return pending

    def _add_next(self) -> None:
        """Add one checkpoint at a time, the oldest first, so that the store has the order of the IDs."""
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


class TaskAnswers:
    """Handles answers for the pending checkpoints in `endings`. Complete checkpoints go to the `finalizer`."""

    def __init__(
        self,
        context: CoordinatorContext,
        endings: CheckpointEndings,
        finalizer: CheckpointFinalizer,
        cleaner: CheckpointsCleaner,
    ) -> None:
        self._job_id = context.job.job_id
        self._stats = context.stats
        self._clock = context.clock
        self._endings = endings
        self._finalizer = finalizer
        self._cleaner = cleaner
        self._closed = False

    def close(self) -> None:
        """Ignore acknowledgements from now on, because the coordinator shuts down."""
        self._closed = True

    def acknowledge(self, message: AcknowledgeCheckpoint) -> bool:
        """Handle one subtask's acknowledgement. Return True if its checkpoint is pending or has just expired."""
        if message.job_id != self._job_id or self._closed:
            logger.warning("acknowledgement of checkpoint %d ignored: not this job's", message.checkpoint_id)
            return False
        pending = self._endings.pending.get(message.checkpoint_id)
        if pending is None:
            return self._endings.acknowledged_late(message)
        if not pending.properties.is_savepoint:
            self._cleaner.register_shared(pending.checkpoint_id, message.files)
        if (conflict := pending.conflicting_batch(message.batches)) is not None and pending.is_abortable:
            self._abort(pending, CheckpointFailureReason.CHECKPOINT_DECLINED, conflict)
            return True
        now = max(self._clock.now_ms(), pending.trigger_timestamp)  # the wall clock may have been set back
        if pending.acknowledge(message, now) is AcknowledgeOutcome.SUCCESS:
            self._stats.report_subtask(message.checkpoint_id, message.vertex_id, message.subtask, message.metrics, now)
            if pending.is_fully_acknowledged:
                self._finalizer.finalize(pending, now)
        return True

    def decline(self, message: DeclineCheckpoint) -> None:
        """Abort the checkpoint that a task declined.

        Ignore an unknown ID. Raise ValueError for another job's message.
        """
        if message.job_id != self._job_id:
            raise ValueError(f"decline of checkpoint {message.checkpoint_id} is for job {message.job_id}")
        pending = self._endings.pending.get(message.checkpoint_id)
        if pending is None or not pending.is_abortable:
            logger.debug("decline of checkpoint %d ignored: not pending", message.checkpoint_id)
            return
        self._abort(pending, CheckpointFailureReason.of_decline(message.reason), message.cause)

    def delay(self, message: DelayCheckpoint) -> None:
        """Store what a task's part of a checkpoint waits for. The failure contains it if the checkpoint expires."""
        pending = self._endings.pending.get(message.checkpoint_id)
        if pending is not None and message.job_id == self._job_id:
            silent_ms = message.silent_ms
            progressed_s = None if silent_ms is None else self._clock.monotonic() - silent_ms / 1000
            pending.delayed(message.cause, progressed_s)
            self._stats.report_delayed(message.checkpoint_id, message.cause)

    def _abort(self, pending: PendingCheckpoint, reason: CheckpointFailureReason, cause: str) -> None:
        self._endings.abort(pending, CheckpointException(reason, cause))
