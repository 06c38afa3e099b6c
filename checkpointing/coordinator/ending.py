"""How a checkpoint ends: completed, failed or aborted. Each on its way is in `pending` until it did, once.

The order within each end is part of the contract: first what is known here, then statistics, then the tasks are told,
then files go; the future comes last, so that who waits for it finds everything done.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from checkpointing.clock import Clock
from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.failures import CheckpointFailureManager
from checkpointing.coordinator.finalizing import Added
from checkpointing.coordinator.gate import StartGate
from checkpointing.coordinator.pending import PendingCheckpoint, PendingPhase
from checkpointing.coordinator.ports import CheckpointLocation, PossibleInconsistentState, TaskGateway
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest
from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import AcknowledgeCheckpoint, NotifyAborted, NotifyComplete, StateFile
from checkpointing.model.status import JobStatus

NUM_ENDED_REMEMBERED = 16

# No checkpoint has this id.
_NOBODY = 0
_Reason = CheckpointFailureReason


class CheckpointEndings:
    """`abandon(request)` frees the trigger pipeline of a request whose checkpoint ended.

    `retained`: oldest first, as the store has them. `files_kept`: failed ones whose files stay, for the store may have
    them. `found_ids`: complete ones that lay in the job's directory and not in the store. `never_stored`: those of them
    that a crash kept from the store, needed until a newer one is in it.
    `full_snapshot_owed`: the next checkpoint must not build on files of a snapshot that is not ours.
    `expired_in_silence`: how many have expired since the last completed one because a batch made no progress.
    """

    def __init__(
        self,
        *,
        tasks: TaskGateway,
        stats: CheckpointStatsTracker,
        failures: CheckpointFailureManager,
        cleaner: CheckpointsCleaner,
        clock: Clock,
        gate: StartGate,
        abandon: Callable[[CheckpointRequest], None],
    ) -> None:
        self.pending: dict[int, PendingCheckpoint] = {}
        self.retained: tuple[CompletedCheckpoint, ...] = ()
        self.files_kept: dict[int, PendingCheckpoint] = {}
        self.found_ids: set[int] = set()
        self.never_stored: tuple[CompletedCheckpoint, ...] = ()
        self.last_completion_ms: float | None = None
        self.full_snapshot_owed = False
        self.expired_in_silence = 0
        self._tasks = tasks
        self._stats = stats
        self._failures = failures
        self._cleaner = cleaner
        self._clock = clock
        self._gate = gate
        self._abandon = abandon
        self._expired: deque[int] = deque(maxlen=NUM_ENDED_REMEMBERED)
        self._discarded: OrderedDict[int, CheckpointLocation] = OrderedDict()
        self._when_next_completed: list[Callable[[CompletedCheckpoint], None]] = []

    def when_next_completed(self, callback: Callable[[CompletedCheckpoint], None]) -> None:
        self._when_next_completed.append(callback)

    def acknowledged_late(self, message: AcknowledgeCheckpoint) -> bool:
        """The checkpoint has ended. The figures still count; the files go, unless a complete checkpoint has them."""
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
        self._gate.proceed()
        return checkpoint_id in self._expired

    def expire(self, checkpoint_id: int) -> None:
        pending = self.pending.get(checkpoint_id)
        if pending is None or not pending.is_abortable:
            return
        cause, silence_s = pending.waiting_for, pending.silence_s(self._clock.monotonic())
        if silence_s is not None and not pending.properties.is_savepoint:
            cause += f" It has made no progress for {round(silence_s)} s."
            self.expired_in_silence += 1
        self.abort(pending, CheckpointException(_Reason.CHECKPOINT_EXPIRED, cause))

    def completed(self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, added: Added | None) -> None:
        """It is durable. The future comes last, so that who waits for it finds everything done and the tasks told."""
        with self._gate.held():
            pending.phase = PendingPhase.COMPLETED
            del self.pending[pending.checkpoint_id]
            self.last_completion_ms = self._clock.monotonic() * 1000
            self.expired_in_silence = 0
            self._stats.report_completed(pending.checkpoint_id, checkpoint, pending.metadata_size)
            self._failures.handle_success(pending.checkpoint_id)
            dropped = () if added is None else added.dropped
            if added is not None:
                self.full_snapshot_owed = False
                self.retained = added.retained
            if not checkpoint.properties.is_savepoint or checkpoint.properties.is_synchronous:
                self._subsume_pending_before(checkpoint.checkpoint_id)
                self._tasks.notify_complete(
                    NotifyComplete(self._tasks.session_id, checkpoint.checkpoint_id, _last_subsumed(dropped))
                )
            for subsumed in dropped:
                self._discard_subsumed(subsumed)
            if added is not None:
                self._settle_what_was_uncertain(added)
            pending.future.set_result(checkpoint)
            callbacks, self._when_next_completed = self._when_next_completed, []
            for callback in callbacks:
                callback(checkpoint)

    def _settle_what_was_uncertain(self, added: Added) -> None:
        for checkpoint_id in added.withdrawn:
            self.discard_files(self.files_kept.pop(checkpoint_id))
        self._discard_never_stored()

    def _discard_never_stored(self) -> None:
        orphans, self.never_stored = self.never_stored, ()
        for orphan in orphans:
            self._discard_subsumed(orphan)

    def discard_uncertain(self, status: JobStatus, *, is_saved: bool) -> None:
        """The store is closed for good: none of them can be found in it any more.

        Complete ones that were never stored go or stay as if they had been.
        """
        uncertain, self.files_kept = self.files_kept, {}
        for pending in uncertain.values():
            self.discard_files(pending)
        self.never_stored = tuple(
            orphan for orphan in self.never_stored if orphan.properties.discard_on(status, is_saved=is_saved)
        )
        self._discard_never_stored()

    def _subsume_pending_before(self, checkpoint_id: int) -> None:
        subsumed = CheckpointException(_Reason.CHECKPOINT_SUBSUMED)
        for pending in list(self.pending.values()):
            if pending.checkpoint_id < checkpoint_id and pending.can_be_subsumed and pending.is_abortable:
                self.abort(pending, subsumed)

    def _discard_subsumed(self, checkpoint: CompletedCheckpoint) -> None:
        if checkpoint.properties.discard_on_subsumed:
            self._cleaner.discard_completed(checkpoint)
            self._stats.report_discarded(checkpoint.checkpoint_id)

    def finalize_failed(self, pending: PendingCheckpoint, error: Exception) -> None:
        exception = CheckpointException.of_finalize_error(error)
        if isinstance(error, PossibleInconsistentState):
            self.files_kept[pending.checkpoint_id] = pending
        pending.withdraw()
        self._end_unsuccessfully(pending, exception, files_in_use=False)

    def abort(self, pending: PendingCheckpoint, exception: CheckpointException) -> None:
        is_writing = pending.phase is PendingPhase.WRITING
        pending.abort(exception)
        self._end_unsuccessfully(pending, exception, files_in_use=is_writing)

    def _end_unsuccessfully(
        self, pending: PendingCheckpoint, exception: CheckpointException, *, files_in_use: bool
    ) -> None:
        """`files_in_use`: its metadata is being written; the finalizer hands it back for discarding when that ended."""
        checkpoint_id = pending.checkpoint_id
        with self._gate.held():
            del self.pending[checkpoint_id]
            self._abandon(pending.request)
            if exception.reason is _Reason.CHECKPOINT_EXPIRED:
                self._expired.append(checkpoint_id)
            self._stats.report_failed(checkpoint_id, self._clock.now_ms(), str(exception))
            self._tasks.notify_aborted(NotifyAborted(self._tasks.session_id, checkpoint_id, exception.reason.name))
            if not files_in_use:
                self.discard_files(pending)
            pending.future.set_exception(exception)
            self._failures.handle_failure(exception, properties=pending.properties, checkpoint_id=checkpoint_id)

    def discard_files(self, pending: PendingCheckpoint) -> None:
        """Remove what an unsuccessful checkpoint left. One that the store may have keeps everything."""
        if pending.checkpoint_id in self.files_kept:
            return
        self._cleaner.discard(pending.checkpoint_id, pending.location)
        if pending.location is not None:
            self._discarded[pending.checkpoint_id] = pending.location
            if len(self._discarded) > NUM_ENDED_REMEMBERED:
                self._discarded.popitem(last=False)
        self._gate.proceed()

    def discard_unused(self, files: Sequence[StateFile]) -> None:
        """Shared files that no checkpoint on the disk needs; those that one on its way does are left."""
        self._cleaner.register_shared(_NOBODY, files)
        self._cleaner.release_shared(_NOBODY)
        self._gate.proceed()

    def abort_all(self, exception: CheckpointException) -> None:
        with self._gate.held():
            for pending in list(self.pending.values()):
                if pending.is_abortable:
                    self.abort(pending, exception)


def _last_subsumed(dropped: Sequence[CompletedCheckpoint]) -> int | None:
    """The newest of the dropped whose files go now; None when all of them stay."""
    return max((c.checkpoint_id for c in dropped if c.properties.discard_on_subsumed), default=None)
