"""How a checkpoint ends: completed, failed or aborted. It stays in `pending` until then, and ends only once.

The order within each end is part of the contract. First the coordinator's own state changes, then the statistics, the
message to the tasks and the removal of files. The future is completed last, when everything else is done.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future

from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import Added, CancelTimer, ExpiryTimer, FailJob, Reject, Resolve, Send, SetTimer
from checkpointing.coordinator.pending import PendingCheckpoint, PendingPhase
from checkpointing.coordinator.ports import CheckpointLocation, PossibleInconsistentState
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest, running_future
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint
from checkpointing.model.configuration import UNLIMITED_FAILURES
from checkpointing.model.messages import AcknowledgeCheckpoint, NotifyAborted, NotifyComplete, StateFile
from checkpointing.model.status import JobStatus

NUM_ENDED_REMEMBERED = 16
MOST_PATIENCE = 16

# Not the ID of any checkpoint.
_NOBODY = 0
_Reason = CheckpointFailureReason
UNKNOWN_CHECKPOINT_ID = -1
THRESHOLD_MESSAGE = "Exceeded checkpoint tolerable failure threshold."


class CheckpointFailureManager:
    """Counts failures in a row. After more than `tolerable_failures` the job fails.

    Each checkpoint ID counts once. A failure older than the last success is ignored. A newer success resets the count.
    Flink's CheckpointFailureManager, without its rules for savepoints: a savepoint never fails the job. A full
    savepoint storage says nothing about a job whose checkpoints are good (decision 122). In Flink a savepoint that a
    task declined counts, and a failed synchronous savepoint fails the job at once.
    """

    def __init__(self, *, tolerable_failures: int) -> None:
        if tolerable_failures < 0:
            raise ValueError(f"tolerable_failures: {tolerable_failures} is not allowed; at least 0")
        self._tolerable = tolerable_failures
        self._counted: set[int] = set()
        self._num_failures = 0
        self._last_succeeded = UNKNOWN_CHECKPOINT_ID

    @property
    def num_continuous_failures(self) -> int:
        return self._num_failures

    def handle_failure(
        self,
        exception: CheckpointException,
        *,
        properties: CheckpointProperties,
        checkpoint_id: int = UNKNOWN_CHECKPOINT_ID,
    ) -> FailJob | None:
        if properties.is_savepoint:
            return None
        if self._is_new_failure(exception, checkpoint_id):
            self._counted.add(checkpoint_id)
            self._num_failures += 1
        if self._num_failures <= self._tolerable:
            return None
        self._clear()
        return FailJob(f"{THRESHOLD_MESSAGE} The latest checkpoint failed due to {exception}", exception)

    def handle_success(self, checkpoint_id: int) -> None:
        if checkpoint_id > self._last_succeeded:
            self._clear()
            self._last_succeeded = checkpoint_id

    def _is_new_failure(self, exception: CheckpointException, checkpoint_id: int) -> bool:
        if self._tolerable == UNLIMITED_FAILURES or not exception.reason.counts:
            return False
        if checkpoint_id == UNKNOWN_CHECKPOINT_ID:
            return True
        return checkpoint_id > self._last_succeeded and checkpoint_id not in self._counted

    def _clear(self) -> None:
        self._counted.clear()
        self._num_failures = 0


class CheckpointEndings:
    """Ends checkpoints. `retained`: the checkpoints in the store, oldest first.

    `files_kept`: the locations of failed checkpoints, by ID, whose files stay because the store may have them.
    `found_ids`: complete checkpoints in the job's directory that were missing in the store. `never_stored`: those of
    them that a crash kept from the store, needed until a newer one is in it. `full_snapshot_owed`: the next checkpoint
    must not use files of a foreign snapshot.
    """

    def __init__(self, context: CoordinatorContext, cleaner: CheckpointsCleaner) -> None:
        self.pending: dict[int, PendingCheckpoint] = {}
        self.retained: tuple[CompletedCheckpoint, ...] = ()
        self.files_kept: dict[int, CheckpointLocation | None] = {}
        self.found_ids: set[int] = set()
        self.never_stored: tuple[CompletedCheckpoint, ...] = ()
        self.last_completion_ms: float | None = None
        self.full_snapshot_owed = False
        self._session_id = context.session_id
        self._timeout_s = context.config.timeout_ms / 1000
        self._stats = context.stats
        self._clock = context.clock
        self._outbox = context.outbox
        self._cleaner = cleaner
        self._failures = CheckpointFailureManager(tolerable_failures=context.config.tolerable_failures)
        self._expired_in_silence = 0
        self._expired: deque[int] = deque(maxlen=NUM_ENDED_REMEMBERED)
        self._discarded: OrderedDict[int, CheckpointLocation] = OrderedDict()
        self._next_completed: list[Future[int]] = []

    def next_completed(self) -> Future[int]:
        """Return a future that is completed after the next checkpoint or savepoint. All with a lower ID are then over.

        The tasks take checkpoints one after the other, so nothing more is written for earlier ones, whichever job
        manager triggered them.
        """
        future: Future[int] = running_future()
        self._next_completed.append(future)
        return future

    def acknowledged_late(self, message: AcknowledgeCheckpoint) -> bool:
        """Handle an acknowledgement for an ended checkpoint. Its figures still count.

        Its files are removed, unless a complete checkpoint has them.
        """
        checkpoint_id = message.checkpoint_id
        self._stats.report_subtask(
            checkpoint_id, message.vertex_id, message.subtask, message.metrics, self._clock.now_ms()
        )
        is_retained = any(c.checkpoint_id == checkpoint_id for c in self.retained)
        if checkpoint_id in self.files_kept or checkpoint_id in self.found_ids or is_retained:
            return False
        self._cleaner.register_shared(checkpoint_id, message.files)
        self._cleaner.release_shared(checkpoint_id)
        location = self._discarded.get(checkpoint_id)
        if location is not None and any(not file.shared for file in message.files):
            self._cleaner.discard_location(location)
        return checkpoint_id in self._expired

    def time_out(self, checkpoint_id: int) -> None:
        """Expire the checkpoint, unless its batch has made progress within the timeout.

        A batch that only waits, as for a slow database, looks like one that hangs. The timeout therefore doubles each
        time, up to MOST_PATIENCE times, so that such a batch ends after a few restarts.
        """
        pending = self.pending.get(checkpoint_id)
        if pending is None or not pending.is_abortable:
            return
        now_s = self._clock.monotonic()
        patience = min(2**self._expired_in_silence, MOST_PATIENCE)
        left_s = pending.time_left_s(now_s, self._timeout_s * patience)
        if left_s > 0:
            self._outbox.put(SetTimer(ExpiryTimer(checkpoint_id), left_s))
            return
        cause, silence_s = pending.waiting_for, pending.silence_s(now_s)
        if silence_s is not None and not pending.properties.is_savepoint:
            cause += f" It has made no progress for {round(silence_s)} s."
            self._expired_in_silence += 1
        self.abort(pending, CheckpointException(_Reason.CHECKPOINT_EXPIRED, cause))

    def completed(self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, added: Added | None) -> None:
        """End a durable checkpoint. A savepoint is not in the store: `added` is None."""
        pending.phase = PendingPhase.COMPLETED
        del self.pending[pending.checkpoint_id]
        self.last_completion_ms = self._clock.monotonic() * 1000
        self._expired_in_silence = 0
        self._stats.report_completed(pending.checkpoint_id, checkpoint, pending.metadata_size)
        self._failures.handle_success(pending.checkpoint_id)
        dropped = () if added is None else added.dropped
        if added is not None:
            self.full_snapshot_owed = False
            self.retained = added.retained
        if not checkpoint.properties.is_savepoint or checkpoint.properties.is_synchronous:
            self._subsume_pending_before(checkpoint.checkpoint_id)
            last_subsumed = max((c.checkpoint_id for c in dropped if c.properties.discard_on_subsumed), default=None)
            self._outbox.put(Send(NotifyComplete(self._session_id, checkpoint.checkpoint_id, last_subsumed)))
        for subsumed in dropped:
            self._discard_subsumed(subsumed)
        if added is not None:
            for checkpoint_id in added.withdrawn:
                self.discard_files(checkpoint_id, self.files_kept.pop(checkpoint_id))
            self._discard_never_stored()
        self._outbox.put(Resolve(pending.future, checkpoint))
        below = min((checkpoint.checkpoint_id, *self.pending))
        waiting, self._next_completed = self._next_completed, []
        for future in waiting:
            self._outbox.put(Resolve(future, below))

    def discard_uncertain(self, status: JobStatus, *, is_saved: bool) -> None:
        """Discard the uncertain checkpoints, because the store is closed and they can no longer be in it.

        Complete checkpoints that were never stored are discarded or kept as if they had been stored.
        """
        uncertain, self.files_kept = self.files_kept, {}
        for checkpoint_id, location in uncertain.items():
            self.discard_files(checkpoint_id, location)
        self.never_stored = tuple(
            orphan for orphan in self.never_stored if orphan.properties.discard_on(status, is_saved=is_saved)
        )
        self._discard_never_stored()

    def finalize_failed(self, pending: PendingCheckpoint, error: Exception) -> None:
        if isinstance(error, PossibleInconsistentState):
            self.files_kept[pending.checkpoint_id] = pending.location
        pending.withdraw()
        self._end_unsuccessfully(pending, CheckpointException.of_finalize_error(error), files_in_use=False)

    def abort(self, pending: PendingCheckpoint, exception: CheckpointException) -> None:
        is_writing = pending.phase is PendingPhase.WRITING
        pending.abort(exception)
        self._end_unsuccessfully(pending, exception, files_in_use=is_writing)

    def abort_all(self, exception: CheckpointException) -> None:
        for pending in list(self.pending.values()):
            if pending.is_abortable:
                self.abort(pending, exception)

    def fail_request(self, request: CheckpointRequest, exception: CheckpointException) -> None:
        """End a request that has no checkpoint yet."""
        self._stats.report_failed_without_pending()
        self._outbox.put(Reject(request.future, exception))
        self._count_failure(request, exception, UNKNOWN_CHECKPOINT_ID)

    def discard_files(self, checkpoint_id: int, location: CheckpointLocation | None) -> None:
        """Remove the files of an unsuccessful checkpoint. Keep everything if the store may have it."""
        if checkpoint_id in self.files_kept:
            return
        self._cleaner.discard(checkpoint_id, location)
        if location is not None:
            self._discarded[checkpoint_id] = location
            if len(self._discarded) > NUM_ENDED_REMEMBERED:
                self._discarded.popitem(last=False)

    def discard_unused(self, files: Sequence[StateFile]) -> None:
        """Remove shared files that no checkpoint on the disk needs, except those that a pending one needs."""
        self._cleaner.register_shared(_NOBODY, files)
        self._cleaner.release_shared(_NOBODY)

    def _end_unsuccessfully(
        self, pending: PendingCheckpoint, exception: CheckpointException, *, files_in_use: bool
    ) -> None:
        """End a checkpoint with a failure.

        `files_in_use`: its metadata is being written. The finalizer discards the files after that.
        """
        checkpoint_id = pending.checkpoint_id
        del self.pending[checkpoint_id]
        if exception.reason is _Reason.CHECKPOINT_EXPIRED:
            self._expired.append(checkpoint_id)
        self._stats.report_failed(checkpoint_id, self._clock.now_ms(), str(exception))
        self._outbox.put(CancelTimer(ExpiryTimer(checkpoint_id)))
        self._outbox.put(Send(NotifyAborted(self._session_id, checkpoint_id, exception.reason.name)))
        if not files_in_use:
            self.discard_files(checkpoint_id, pending.location)
        self._outbox.put(Reject(pending.future, exception))
        self._count_failure(pending.request, exception, checkpoint_id)

    def _count_failure(self, request: CheckpointRequest, exception: CheckpointException, checkpoint_id: int) -> None:
        failure = self._failures.handle_failure(exception, properties=request.properties, checkpoint_id=checkpoint_id)
        if failure is not None:
            self._outbox.put(failure)

    def _subsume_pending_before(self, checkpoint_id: int) -> None:
        subsumed = CheckpointException(_Reason.CHECKPOINT_SUBSUMED)
        for pending in list(self.pending.values()):
            if pending.checkpoint_id < checkpoint_id and pending.can_be_subsumed and pending.is_abortable:
                self.abort(pending, subsumed)

    def _discard_subsumed(self, checkpoint: CompletedCheckpoint) -> None:
        if checkpoint.properties.discard_on_subsumed:
            self._cleaner.discard_completed(checkpoint)
            self._stats.report_discarded(checkpoint.checkpoint_id)

    def _discard_never_stored(self) -> None:
        orphans, self.never_stored = self.never_stored, ()
        for orphan in orphans:
            self._discard_subsumed(orphan)
