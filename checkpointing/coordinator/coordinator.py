"""The checkpoint coordinator of one job: when checkpoints start, who still owes what, how each of them ends.

Modelled on Flink's CheckpointCoordinator. All methods are called on the job manager's main thread and return at once:
what blocks goes through the IoExecutor, whose callbacks come back on the same thread.

The parts: `requests` decides what runs next, `triggering` takes a request to the tasks, `answers` hears what they say
to it, `pending` collects the acknowledgements, `finalizing` makes a complete checkpoint durable, `ending` ends each of
them once, `cleaning` removes files, `periodic` keeps the cadence, `failures` counts, `stats` remembers.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from concurrent.futures import Future

from checkpointing.clock import Clock
from checkpointing.coordinator.answers import TaskAnswers
from checkpointing.coordinator.cleaning import CheckpointsCleaner, LeftBehind
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.failures import CheckpointFailureManager
from checkpointing.coordinator.finalizing import CheckpointFinalizer
from checkpointing.coordinator.gate import StartGate
from checkpointing.coordinator.inflight import InFlightIo
from checkpointing.coordinator.pending import JobIdentity, PendingCheckpoint, PendingPhase
from checkpointing.coordinator.periodic import PeriodicScheduler
from checkpointing.coordinator.ports import (
    CheckpointIDCounter,
    CheckpointLocation,
    CheckpointPlan,
    CheckpointStorage,
    CompletedCheckpointStore,
    IoExecutor,
    TaskGateway,
    Timer,
)
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import (
    CheckpointRequest,
    CheckpointRequestDecider,
    CoordinatorFacts,
    Decision,
)
from checkpointing.coordinator.restoring import CheckpointRestoring
from checkpointing.coordinator.shared_state import ReferenceCountingRegistry
from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.coordinator.termination import CoordinatorTermination
from checkpointing.coordinator.triggering import TriggerHost, TriggerPipeline
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.messages import CheckpointKind, TriggerCheckpoint
from checkpointing.model.status import JobStatus

logger = logging.getLogger(__name__)

_Reason = CheckpointFailureReason

MOST_PATIENCE = 16


class CheckpointCoordinator:
    """One per job and leader term; it outlives the job's drivers.

    Every trigger returns a future of the CompletedCheckpoint. It is completed on the main thread, after the statistics
    show the outcome and the tasks were told, with the checkpoint or with a CheckpointException; it cannot be cancelled.

    `answers`: where what the tasks say goes. `restoring`: what the job goes on from; for use after `recover` and before
    anything is triggered.
    """

    def __init__(
        self,
        *,
        job_id: str,
        job_name: str,
        entry_class: str,
        config: CheckpointConfiguration,
        plan: Callable[[], CheckpointPlan],
        tasks: TaskGateway,
        id_counter: CheckpointIDCounter,
        store: CompletedCheckpointStore,
        storage: CheckpointStorage,
        stats: CheckpointStatsTracker,
        failure_manager: CheckpointFailureManager,
        clock: Clock,
        timer: Timer,
        io: IoExecutor,
        imported_queries: tuple[str, ...] = (),
        left_behind: LeftBehind | None = None,
        initial_delay_ms: Callable[[int, int], int] = random.randint,
    ) -> None:
        """`left_behind` is told of files that could not be removed, however often it was tried; else that is logged.

        `initial_delay_ms(low, high)` picks the delay of the first periodic checkpoint.
        """
        self._config = config
        self._tasks = tasks
        self._store = store
        self._stats = stats
        self._failures = failure_manager
        self._clock = clock
        self._timer = timer
        self._io = InFlightIo(io, self._on_quiet)
        self._cleaner = CheckpointsCleaner(
            storage=storage, registry=ReferenceCountingRegistry(), io=io, timer=timer, left_behind=left_behind
        )
        self._gate = StartGate(self._start_what_waits)
        self._cleaner.add_listener(self._gate.proceed)
        self._endings = CheckpointEndings(
            tasks=tasks,
            stats=stats,
            failures=failure_manager,
            cleaner=self._cleaner,
            clock=clock,
            gate=self._gate,
            abandon=self._free_pipeline,
        )
        self._decider = CheckpointRequestDecider(max_concurrent=config.max_concurrent, min_pause_ms=config.min_pause_ms)
        self._periodic = PeriodicScheduler(
            config=config,
            clock=clock,
            timer=timer,
            fire=self._trigger_periodic,
            initial_delay_ms=initial_delay_ms,
        )
        self._pipeline = TriggerPipeline(
            host=TriggerHost(
                check_global_state=self._check_global_state,
                create_pending=self._create_pending,
                send_trigger=self._send_trigger,
                trigger_failed=self._trigger_failed,
                discard_unwanted=self._cleaner.discard_location,
                trigger_ended=self._gate.proceed,
            ),
            plan=plan,
            id_counter=id_counter,
            storage=storage,
            io=self._io,
        )
        finalizer = CheckpointFinalizer(
            storage=storage,
            store=store,
            io=self._io,
            uncertain=lambda: tuple(self._endings.files_kept),
            on_completed=self._endings.completed,
            on_failed=self._endings.finalize_failed,
            on_abandoned=self._endings.discard_files,
        )
        self._termination = CoordinatorTermination(
            store=store,
            id_counter=id_counter,
            storage=storage,
            cleaner=self._cleaner,
            discard_uncertain=self._endings.discard_uncertain,
            stats=stats,
            io=io,
        )
        self.answers = TaskAnswers(
            job=JobIdentity(job_id, job_name, entry_class, imported_queries),
            endings=self._endings,
            finalizer=finalizer,
            cleaner=self._cleaner,
            stats=stats,
            clock=clock,
        )
        self.restoring = CheckpointRestoring(
            job_id=job_id,
            retention=config.retention,
            store=store,
            id_counter=id_counter,
            endings=self._endings,
            cleaner=self._cleaner,
            pipeline=self._pipeline,
            stats=stats,
            clock=clock,
            io=self._io,
        )
        self._shut_down = False
        self._waiting_for_none: list[tuple[Callable[[PendingCheckpoint], bool], Callable[[], None]]] = []
        self._when_quiet: list[Callable[[], None]] = []

    # What is known

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """The checkpoints on their way, ascending."""
        return tuple(sorted(self._endings.pending))

    @property
    def latest_completed(self) -> CompletedCheckpoint | None:
        """The newest retained checkpoint: what the job restarts from. A savepoint is never among them."""
        return self._endings.retained[-1] if self._endings.retained else None

    @property
    def uncertain_ids(self) -> tuple[int, ...]:
        """Of failed checkpoints that the store may have all the same: their files must stay."""
        return tuple(self._endings.files_kept)

    @property
    def is_periodic_running(self) -> bool:
        return self._periodic.is_running

    # Starting and stopping

    def recover(
        self, on_done: Callable[[CompletedCheckpoint | None], None], on_error: Callable[[Exception], None]
    ) -> None:
        """Read the store and count the references of what it holds; `on_done` gets the newest retained checkpoint.

        To be called once, before anything is triggered. `on_error` gets what the store raised: the job must not start.
        """
        self.restoring.recover(lambda: on_done(self.latest_completed), on_error)

    def restored(self, checkpoint: CompletedCheckpoint, is_savepoint: bool) -> None:
        """A driver was started from `checkpoint`. `is_savepoint`: the one the job was submitted with, not claimed.

        From that, or from another job's checkpoint, ids go on after it and the next checkpoint is a full one.
        """
        self.restoring.restored(checkpoint, is_savepoint=is_savepoint)

    def start_periodic(self) -> None:
        """The job runs: trigger every interval from now on; nothing when none is configured. Again: begin anew."""
        if not self._shut_down:
            self._periodic.start()

    def trigger_periodic_now(self) -> None:
        """Trigger the next periodic checkpoint at once, the following ones every interval; nothing when stopped."""
        self._periodic.postpone(0)

    def stop_periodic(self) -> None:
        """The job stopped running: no more periodic triggers; what is pending or queued fails with SUSPEND.

        A request after this (a savepoint) is still taken. A checkpoint that is just being added to the store goes on;
        see `when_settled`.
        """
        self._periodic.stop()
        self._abort_everything(_Reason.CHECKPOINT_COORDINATOR_SUSPEND)

    def abort_pending(self, reason: CheckpointFailureReason, cause: str = "") -> None:
        """The driver was lost: abort what it owes. Queued requests stay and fail for themselves if no task runs."""
        self._endings.abort_all(CheckpointException(reason, cause))

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` (perhaps at once) when no checkpoint is being added to the store.

        After `abort_pending`, wait for this before choosing what to restart from: from then on `latest_completed`
        stays as it is.
        """
        self._when_none(lambda pending: pending.phase is PendingPhase.ADDING, callback)

    def when_savepoints_are_written(self, callback: Callable[[], None]) -> None:
        """Call `callback` (perhaps at once) when no savepoint is on its way that the tasks have acknowledged in full.

        A driver may end before its last savepoint is complete: after this it is, or it has failed.
        """
        self._when_none(lambda pending: pending.properties.is_savepoint and pending.is_fully_acknowledged, callback)

    def when_cleaned(self, callback: Callable[[], None]) -> None:
        """Call `callback` (perhaps at once) when nothing of what checkpoints left is being removed."""
        self._cleaner.when_idle(callback)

    def when_next_completed(self, callback: Callable[[int], None]) -> None:
        """Call `callback` once, after the next checkpoint or savepoint: all with a lower id than it gets are over.

        The tasks take one after the other, so nothing is written for those any more, by whomever they were triggered.
        """
        pending = self._endings.pending
        self._endings.when_next_completed(lambda checkpoint: callback(min((checkpoint.checkpoint_id, *pending))))

    def _when_none(self, matches: Callable[[PendingCheckpoint], bool], callback: Callable[[], None]) -> None:
        self._waiting_for_none.append((matches, callback))
        self._tell_who_waited()

    def shutdown(
        self, status: JobStatus, on_done: Callable[[Exception | None], None], *, is_saved: bool = False
    ) -> None:
        """The job ended for this job manager: fail all that is on its way, close store and counter, clean up.

        On a globally terminal status each retained checkpoint is discarded or kept as its properties say. `on_done`
        comes when no I/O is left, with the error if the store or the counter could not be closed.
        `is_saved`: a savepoint holds all that the job did, see `CheckpointProperties.discard_on`.
        """
        self._close()
        self._when_quiet.append(lambda: self._termination.run(status, on_done, is_saved=is_saved))
        self._on_quiet()

    def abandon_shutdown(self) -> None:
        """Storage hangs: when it comes back, close nothing. Somebody else may have repeated the shutdown by then."""
        self._close()
        self._when_quiet.clear()

    def _close(self) -> None:
        self._shut_down = True
        self.answers.close()
        self._periodic.stop()
        self._abort_everything(_Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)

    # Triggering

    def trigger_checkpoint(self, full: bool = False) -> Future[CompletedCheckpoint]:
        """A checkpoint now, asked for by a person: neither the interval nor the minimum pause delays it."""
        return self._submit(self._request(CheckpointKind.CHECKPOINT, full=full))

    def trigger_savepoint(self, target_directory: str | None, is_periodic: bool = False) -> Future[CompletedCheckpoint]:
        """A savepoint under `target_directory`, else under the job's configured savepoint directory."""
        return self._submit(
            self._request(CheckpointKind.SAVEPOINT, target_directory=target_directory, is_periodic=is_periodic)
        )

    def trigger_synchronous_savepoint(self, target_directory: str | None) -> Future[CompletedCheckpoint]:
        """The savepoint of a stop: after it the tasks process nothing more. Stop the periodic trigger before."""
        return self._submit(self._request(CheckpointKind.SYNC_SAVEPOINT, target_directory=target_directory))

    def _trigger_periodic(self) -> None:
        """One queued is enough: Flink queues all, and after a slow checkpoint runs them in a burst."""
        if not self._decider.has_periodic_checkpoint:
            self._submit(self._request(CheckpointKind.CHECKPOINT, is_periodic=True))

    def _request(
        self,
        kind: CheckpointKind,
        *,
        target_directory: str | None = None,
        is_periodic: bool = False,
        full: bool = False,
    ) -> CheckpointRequest:
        return CheckpointRequest(
            properties=CheckpointProperties(kind, self._config.retention, forced=kind.is_savepoint),
            is_periodic=is_periodic,
            target_directory=(target_directory or self._config.savepoint_directory) if kind.is_savepoint else None,
            full=full,
        )

    def _submit(self, request: CheckpointRequest) -> Future[CompletedCheckpoint]:
        if self._shut_down:
            request.future.set_exception(CheckpointException(_Reason.CHECKPOINT_COORDINATOR_SHUTDOWN))
        else:
            self._act(self._decider.submit(request, self._facts()))
            self._gate.proceed()
        return request.future

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
            rejection.request.future.set_exception(rejection.exception)
        if decision.chosen is not None:
            self._pipeline.start(decision.chosen)

    def _start_what_waits(self) -> None:
        while True:
            self._tell_who_waited()
            self._remove_condemned_if_safe()
            decision = self._decider.choose(self._facts())
            if decision == Decision():
                return
            self._act(decision)

    def _tell_who_waited(self) -> None:
        waiting, self._waiting_for_none = self._waiting_for_none, []
        for matches, callback in waiting:
            if any(matches(pending) for pending in self._endings.pending.values()):
                self._waiting_for_none.append((matches, callback))
            else:
                callback()

    def _remove_condemned_if_safe(self) -> None:
        pool_in_use = any(not pending.properties.is_savepoint for pending in self._endings.pending.values())
        if not pool_in_use and not self._pipeline.is_triggering and not self._shut_down:
            self._cleaner.remove_condemned()

    def _on_quiet(self) -> None:
        if self._io.is_idle:
            callbacks, self._when_quiet = self._when_quiet, []
            for callback in callbacks:
                callback()

    # The steps of the trigger pipeline

    def _free_pipeline(self, request: CheckpointRequest) -> None:
        self._pipeline.abandon(request)

    def _check_global_state(self, request: CheckpointRequest) -> None:
        if self._shut_down:
            raise CheckpointException(_Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)
        if request.is_periodic and not self._periodic.is_running:
            raise CheckpointException(_Reason.PERIODIC_SCHEDULER_SHUTDOWN)
        if request.properties.is_savepoint and request.target_directory is None:
            raise CheckpointException(
                _Reason.TRIGGER_CHECKPOINT_FAILURE,
                "No savepoint directory was given and none is configured (execution.checkpointing.savepoint-dir).",
            )

    def _create_pending(
        self, request: CheckpointRequest, plan: CheckpointPlan, checkpoint_id: int
    ) -> PendingCheckpoint:
        now = self._clock.now_ms()
        pending = PendingCheckpoint(checkpoint_id=checkpoint_id, request=request, plan=plan, trigger_timestamp=now)
        self._endings.pending[checkpoint_id] = pending
        self._stats.report_pending(checkpoint_id, now, request.properties, plan.vertices)
        self._expire_in(pending, self._config.timeout_ms / 1000)
        return pending

    def _expire_in(self, pending: PendingCheckpoint, seconds: float) -> None:
        pending.set_canceller(self._timer.call_later(seconds, lambda: self._expire_unless_computing(pending)))

    def _expire_unless_computing(self, pending: PendingCheckpoint) -> None:
        """Expire it, unless its batch has made progress within the time-out.

        A batch that only waits, as for a slow database, looks like one that hangs. The time-out therefore doubles each
        time, up to MOST_PATIENCE times, so that such a batch ends after a few restarts.
        """
        patience = min(2**self._endings.expired_in_silence, MOST_PATIENCE)
        timeout_s = self._config.timeout_ms / 1000 * patience
        left_s = pending.time_left_s(self._clock.monotonic(), timeout_s)
        if left_s > 0:
            self._expire_in(pending, left_s)
        else:
            self._endings.expire(pending.checkpoint_id)

    def _send_trigger(self, pending: PendingCheckpoint, location: CheckpointLocation) -> None:
        owed = self._endings.full_snapshot_owed and not pending.properties.is_savepoint
        self._tasks.trigger_checkpoint(
            TriggerCheckpoint(
                session_id=self._tasks.session_id,
                checkpoint_id=pending.checkpoint_id,
                kind=pending.properties.kind,
                trigger_timestamp=pending.trigger_timestamp,
                timeout_ms=self._config.timeout_ms,
                directory=location.directory,
                shared_directory=location.shared_directory,
                full=pending.request.full or owed,
            )
        )

    def _trigger_failed(
        self, request: CheckpointRequest, pending: PendingCheckpoint | None, exception: CheckpointException
    ) -> None:
        if pending is not None:
            self._endings.abort(pending, exception)
            return
        self._stats.report_failed_without_pending()
        request.future.set_exception(exception)
        self._failures.handle_failure(exception, properties=request.properties)

    def _abort_everything(self, reason: CheckpointFailureReason) -> None:
        exception = CheckpointException(reason)
        with self._gate.held():
            for request in self._decider.drain():
                request.future.set_exception(exception)
            self._endings.abort_all(exception)
