"""The checkpoint coordinator of one job: when checkpoints start, who has not acknowledged, how each of them ends.

Modelled on Flink's CheckpointCoordinator. It decides and does no I/O. Events come in: commands of the job manager,
messages of the driver, ends of steps, timers. Each event is a call that returns at once. `take_effects` then returns
the resulting effects. `jobs/coordinator_runner.py` connects the two.

The parts: `requests` decides what runs next. `triggering` keeps the interval and sends a request to the tasks.
`answers` handles the tasks' answers and stores a complete checkpoint. `pending` collects the acknowledgements. `ending`
ends each checkpoint once and counts failures. `cleaning` removes files, and `stats` keeps the statistics.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, assert_never

from checkpointing.clock import Clock
from checkpointing.coordinator.answers import CheckpointFinalizer, TaskAnswers
from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.context import CoordinatorContext, Outbox
from checkpointing.coordinator.effects import (
    AddCheckpoint,
    AddClaimed,
    AllocateId,
    CloseCounter,
    CloseStore,
    Effect,
    ExpiryTimer,
    JobTimer,
    MakeLocation,
    ReadStore,
    Reject,
    RemovalTimer,
    RemoveEmptyDirectories,
    RemoveShared,
    RemoveSnapshot,
    Resolve,
    Step,
    TimerName,
    WriteMetadata,
)
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.pending import JobIdentity, PendingCheckpoint, PendingPhase
from checkpointing.coordinator.ports import CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import (
    CheckpointRequest,
    CheckpointRequestDecider,
    CoordinatorFacts,
    Decision,
    running_future,
)
from checkpointing.coordinator.restoring import CheckpointRestoring
from checkpointing.coordinator.stats import DEFAULT_HISTORY_SIZE, CheckpointStatsTracker
from checkpointing.coordinator.termination import CoordinatorTermination
from checkpointing.coordinator.triggering import PeriodicScheduler, TriggerPipeline
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.messages import CheckpointKind
from checkpointing.model.status import JobStatus

_Reason = CheckpointFailureReason


class _Handlers(NamedTuple):
    done: Callable[[Any, Any], None]
    failed: Callable[[Any, Exception], None]


class CheckpointCoordinator:
    """The coordinator of one job for one leader term.

    It outlives the job's drivers. Used on one thread, between events.

    Every trigger returns a future of the CompletedCheckpoint, which cannot be cancelled. It is completed, with the
    checkpoint or a CheckpointException, after the statistics show the outcome and the tasks were notified.

    `answers` handles the driver's messages. `restoring` handles the state that the job continues from; it is used
    before anything is triggered.
    """

    def __init__(
        self,
        job: JobIdentity,
        session_id: str,
        config: CheckpointConfiguration,
        clock: Clock,
        plan: Callable[[], CheckpointPlan],
        *,
        history_size: int = DEFAULT_HISTORY_SIZE,
        initial_delay_ms: Callable[[int, int], int] = random.randint,
    ) -> None:
        """Create a coordinator without checkpoints.

        Args:
            session_id: the session ID of the leader's term.
            plan: returns who must acknowledge a checkpoint that starts now.
            initial_delay_ms: picks the delay of the first periodic checkpoint, between two limits.
        """
        self.stats = CheckpointStatsTracker(history_size=history_size)
        self._config = config
        self._clock = clock
        self._outbox = Outbox()
        context = CoordinatorContext(job, session_id, config, clock, self.stats, self._outbox)
        self._cleaner = CheckpointsCleaner(self._outbox)
        self._endings = CheckpointEndings(context, self._cleaner)
        self._decider = CheckpointRequestDecider(max_concurrent=config.max_concurrent, min_pause_ms=config.min_pause_ms)
        self._periodic = PeriodicScheduler(context, initial_delay_ms)
        self._pipeline = TriggerPipeline(context, plan, self._endings, self._periodic)
        self._finalizer = CheckpointFinalizer(context, self._endings)
        self._termination = CoordinatorTermination(context, self._endings, self._cleaner)
        self.answers = TaskAnswers(context, self._endings, self._finalizer, self._cleaner)
        self.restoring = CheckpointRestoring(context, self._endings, self._cleaner, self._pipeline)
        self._step_handlers = self._handlers()
        self._shut_down = False
        self._waiting: list[tuple[Callable[[], bool], Future[None]]] = []

    def take_effects(self) -> list[Effect]:
        """Return the effects of the last event, in order. Call it after each event."""
        if self._decider.num_queued or self._cleaner.can_remove_unreferenced:
            self._start_queued()
        if self._waiting:
            self._resolve_waiting()
        if self._shut_down:
            self._termination.proceed()
        return self._outbox.take()

    # What is known

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Return the IDs of the pending checkpoints, ascending."""
        return tuple(sorted(self._endings.pending))

    @property
    def latest_completed(self) -> CompletedCheckpoint | None:
        """Return the newest retained checkpoint, from which the job restarts. It is never a savepoint."""
        return self._endings.retained[-1] if self._endings.retained else None

    @property
    def uncertain_ids(self) -> tuple[int, ...]:
        """Return the IDs of failed checkpoints that the store may nevertheless have. Their files must stay."""
        return tuple(self._endings.files_kept)

    # Starting and stopping

    def start_periodic(self) -> None:
        """Trigger a checkpoint every interval from now on, if one is configured.

        A second call restarts the interval.
        """
        if not self._shut_down:
            self._periodic.start()

    def trigger_periodic_now(self) -> None:
        """Trigger the next periodic checkpoint at once and the following ones every interval. Do nothing if stopped."""
        self._periodic.postpone(0)

    def stop_periodic(self) -> None:
        """Stop periodic triggers, because the job no longer runs. Pending and queued checkpoints fail with SUSPEND.

        Later requests (savepoints) are still accepted. A checkpoint that is being added to the store is not aborted;
        see `settled`.
        """
        self._periodic.stop()
        self._abort_all(_Reason.CHECKPOINT_COORDINATOR_SUSPEND)

    def abort_pending(self, reason: CheckpointFailureReason, cause: str = "") -> None:
        """Abort the checkpoints of a lost driver. Queued requests stay, and fail later if no task runs."""
        self._endings.abort_all(CheckpointException(reason, cause))

    def settled(self) -> Future[None]:
        """Return a future that is completed when no checkpoint is being added to the store.

        After `abort_pending`, wait for this future before choosing the state for a restart: then `latest_completed` no
        longer changes.
        """
        return self._wait_until_none(lambda pending: pending.phase is PendingPhase.ADDING)

    def savepoints_written(self) -> Future[None]:
        """Return a future that is completed when no fully acknowledged savepoint is pending.

        A driver may end before its last savepoint is complete. After this future the savepoint is complete or has
        failed.
        """
        return self._wait_until_none(lambda pending: pending.properties.is_savepoint and pending.is_fully_acknowledged)

    def cleaned(self) -> Future[None]:
        """Return a future that is completed when no removal of checkpoint files is running."""
        return self._wait_until(lambda: self._cleaner.num_removals == 0)

    def next_completed(self) -> Future[int]:
        """Return the future of CheckpointEndings.next_completed."""
        return self._endings.next_completed()

    def shutdown(self, status: JobStatus, *, is_saved: bool = False) -> Future[Exception | None]:
        """Fail all pending checkpoints, close store and counter, and clean up, because the job has ended here.

        On a globally terminal status each retained checkpoint is discarded or kept according to its properties. The
        future is completed when no step is left, with the error if the store or the counter could not be closed.

        Args:
            is_saved: a savepoint contains everything that the job has processed, see `CheckpointProperties.discard_on`.
        """
        self._close()
        return self._termination.request(status, is_saved=is_saved)

    def abandon_shutdown(self) -> None:
        """Shut down without closing anything, because storage hangs.

        Another owner may repeat the shutdown meanwhile.
        """
        self._close()
        self._termination.abandon()

    def _close(self) -> None:
        self._shut_down = True
        self.answers.close()
        self._pipeline.close()
        self._periodic.stop()
        self._abort_all(_Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)

    # Triggering

    def trigger_checkpoint(self, full: bool = False) -> Future[CompletedCheckpoint]:
        """Trigger a checkpoint that a person requested. Neither the interval nor the minimum pause delays it."""
        return self._submit(CheckpointKind.CHECKPOINT, full=full)

    def trigger_savepoint(self, target_directory: str | None, is_periodic: bool = False) -> Future[CompletedCheckpoint]:
        """Trigger a savepoint under `target_directory`, else under the job's configured savepoint directory."""
        return self._submit(CheckpointKind.SAVEPOINT, target_directory=target_directory, is_periodic=is_periodic)

    def trigger_synchronous_savepoint(self, target_directory: str | None) -> Future[CompletedCheckpoint]:
        """Trigger the savepoint of a stop. After it the tasks process nothing more. Stop periodic triggers first."""
        return self._submit(CheckpointKind.SYNC_SAVEPOINT, target_directory=target_directory)

    def _submit(
        self,
        kind: CheckpointKind,
        *,
        target_directory: str | None = None,
        is_periodic: bool = False,
        full: bool = False,
    ) -> Future[CompletedCheckpoint]:
        request = CheckpointRequest(
            properties=CheckpointProperties(kind, self._config.retention, forced=kind.is_savepoint),
            is_periodic=is_periodic,
            target_directory=(target_directory or self._config.savepoint_directory) if kind.is_savepoint else None,
            full=full,
        )
        if self._shut_down:
            shut_down = CheckpointException(_Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)
            self._outbox.put(Reject(request.future, shut_down))
        else:
            self._act(self._decider.submit(request, self._facts()))
        return request.future

    def _start_queued(self) -> None:
        while True:
            self._remove_unreferenced_if_safe()
            decision = self._decider.choose(self._facts())
            if decision == Decision():
                return
            self._act(decision)

    def _facts(self) -> CoordinatorFacts:
        return CoordinatorFacts(
            is_triggering=self._pipeline.is_triggering or self._cleaner.is_removing_shared,
            num_pending=len(self._endings.pending),
            num_cleaning=self._cleaner.num_cleaning,
            now_ms=self._clock.monotonic() * 1000,
            last_completion_ms=self._endings.last_completion_ms,
        )

    def _act(self, decision: Decision) -> None:
        if decision.postpone_ms is not None:
            self._periodic.postpone(decision.postpone_ms)
        for rejection in decision.rejected:
            self._outbox.put(Reject(rejection.request.future, rejection.exception))
        if decision.chosen is not None:
            self._pipeline.start(decision.chosen)

    def _remove_unreferenced_if_safe(self) -> None:
        if not self._cleaner.can_remove_unreferenced or self._shut_down:
            return
        pool_in_use = any(not pending.properties.is_savepoint for pending in self._endings.pending.values())
        if not pool_in_use and not self._pipeline.is_triggering:
            self._cleaner.remove_unreferenced()

    def _abort_all(self, reason: CheckpointFailureReason) -> None:
        exception = CheckpointException(reason)
        for request in self._decider.drain():
            self._outbox.put(Reject(request.future, exception))
        self._endings.abort_all(exception)

    # Waiting

    def _wait_until_none(self, matches: Callable[[PendingCheckpoint], bool]) -> Future[None]:
        return self._wait_until(lambda: not any(matches(pending) for pending in self._endings.pending.values()))

    def _wait_until(self, holds: Callable[[], bool]) -> Future[None]:
        future: Future[None] = running_future()
        self._waiting.append((holds, future))
        return future

    def _resolve_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for holds, future in waiting:
            if holds():
                self._outbox.put(Resolve(future, None))
            else:
                self._waiting.append((holds, future))

    # Ends of steps, timers

    def _handlers(self) -> dict[type[object], _Handlers]:
        cleaner, finalizer, pipeline = self._cleaner, self._finalizer, self._pipeline
        restoring, termination = self.restoring, self._termination
        return {
            AllocateId: _Handlers(pipeline.id_allocated, pipeline.id_not_allocated),
            MakeLocation: _Handlers(pipeline.located, pipeline.not_located),
            WriteMetadata: _Handlers(finalizer.written, finalizer.not_written),
            AddCheckpoint: _Handlers(finalizer.added, finalizer.not_added),
            ReadStore: _Handlers(restoring.store_read, restoring.store_not_read),
            AddClaimed: _Handlers(restoring.store_read, restoring.store_not_read),
            RemoveSnapshot: _Handlers(cleaner.directory_removed, cleaner.directory_not_removed),
            RemoveShared: _Handlers(cleaner.shared_removed, cleaner.shared_not_removed),
            CloseStore: _Handlers(termination.store_closed, termination.store_not_closed),
            CloseCounter: _Handlers(termination.counter_closed, termination.counter_not_closed),
            RemoveEmptyDirectories: _Handlers(termination.emptied, termination.not_emptied),
        }

    def step_done(self, step: Step, result: object) -> None:
        """Handle the end of a step. The class of `step` documents the type of the result."""
        self._outbox.num_steps -= 1
        self._step_handlers[type(step)].done(step, result)

    def step_failed(self, step: Step, error: Exception) -> None:
        self._outbox.num_steps -= 1
        self._step_handlers[type(step)].failed(step, error)

    def timer_fired(self, timer: TimerName) -> None:
        match timer:
            case JobTimer.PERIODIC:
                self._trigger_periodic()
            case JobTimer.SHARED_REMOVAL:
                self._cleaner.retry_shared()
            case ExpiryTimer():
                self._endings.time_out(timer.checkpoint_id)
            case RemovalTimer():
                self._cleaner.retry_directory(timer.directory)
            case _:
                assert_never(timer)

    def _trigger_periodic(self) -> None:
        """Trigger a periodic checkpoint unless one is queued.

        Flink queues all, and runs them in a burst after a slow one.
        """
        self._periodic.fired()
        if not self._decider.has_periodic_checkpoint:
            self._submit(CheckpointKind.CHECKPOINT, is_periodic=True)
