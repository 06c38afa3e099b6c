"""The interval of checkpoints, and the steps from a chosen request to the message that triggers the tasks.

A request gets an ID, a pending checkpoint and a location, and then triggers the tasks. At most one request is in these
steps. A step may end after its checkpoint was aborted. Then only its result is cleaned up: an unused location is
discarded.
"""

from __future__ import annotations

from collections.abc import Callable

from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import (
    AllocateId,
    CancelTimer,
    ExpiryTimer,
    JobTimer,
    MakeLocation,
    Send,
    SetTimer,
)
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.pending import PendingCheckpoint
from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest
from checkpointing.model.messages import TriggerCheckpoint

_Reason = CheckpointFailureReason


class PeriodicScheduler:
    """Sets its timer for every interval while it is started, on the monotonic clock.

    `initial_delay_ms(low, high)` picks the very first delay.
    """

    def __init__(self, context: CoordinatorContext, initial_delay_ms: Callable[[int, int], int]) -> None:
        self._config = context.config
        self._clock = context.clock
        self._outbox = context.outbox
        self._initial_delay_ms = initial_delay_ms
        self.is_running = False
        self._started_before = False
        self._due = 0.0

    def start(self) -> None:
        """Start the interval.

        The first delay is random in [min pause, interval], so that not all jobs trigger together. Later ones are the
        min pause.
        """
        if not self._config.periodic:
            return
        delay_ms = self._config.min_pause_ms
        if not self._started_before:
            delay_ms = self._initial_delay_ms(self._config.min_pause_ms, self._config.effective_interval_ms)
        self._started_before = True
        self.is_running = True
        self._schedule(delay_ms / 1000)

    def stop(self) -> None:
        self.is_running = False
        self._outbox.put(CancelTimer(JobTimer.PERIODIC))

    def postpone(self, delay_ms: float) -> None:
        """Fire next in `delay_ms`, and then every interval. Do nothing if stopped."""
        if self.is_running:
            self._schedule(delay_ms / 1000)

    def fired(self) -> None:
        """Schedule the next trigger. If the thread is late, skip missed triggers instead of catching up."""
        interval_s = self._config.effective_interval_ms / 1000
        now = self._clock.monotonic()
        missed = max(0, int((now - self._due) // interval_s))
        self._schedule(self._due + (missed + 1) * interval_s - now)

    def _schedule(self, delay_s: float) -> None:
        self._due = self._clock.monotonic() + delay_s
        self._outbox.put(SetTimer(JobTimer.PERIODIC, delay_s))


class TriggerPipeline:
    """Takes one request from the queue to the tasks. `plan` returns who must acknowledge now."""

    def __init__(
        self,
        context: CoordinatorContext,
        plan: Callable[[], CheckpointPlan],
        endings: CheckpointEndings,
        periodic: PeriodicScheduler,
    ) -> None:
        self._context = context
        self._outbox = context.outbox
        self._plan = plan
        self._endings = endings
        self._periodic = periodic
        self._is_allocating = False
        self._is_closed = False
        self._least_id = 0

    @property
    def is_triggering(self) -> bool:
        return self._is_allocating or any(pending.location is None for pending in self._endings.pending.values())

    def close(self) -> None:
        """Let a request fail whose ID is being allocated, because the coordinator shuts down."""
        self._is_closed = True

    def raise_ids_to(self, least_id: int) -> None:
        """Give no checkpoint an ID below `least_id` from now on. IDs never decrease."""
        self._least_id = max(self._least_id, least_id)

    def start(self, request: CheckpointRequest) -> None:
        try:
            self._check_global_state(request)
            plan = self._ready_plan()
        except CheckpointException as exception:
            self._endings.fail_request(request, exception)
            return
        self._is_allocating = True
        self._outbox.do(AllocateId(request, plan, self._least_id))

    def id_allocated(self, step: AllocateId, checkpoint_id: int) -> None:
        self._is_allocating = False
        request = step.request
        try:
            self._check_global_state(request)
        except CheckpointException as exception:
            self._endings.fail_request(request, exception)
            return
        now = self._context.clock.now_ms()
        self._endings.pending[checkpoint_id] = PendingCheckpoint(
            checkpoint_id=checkpoint_id, request=request, plan=step.plan, trigger_timestamp=now
        )
        self._context.stats.report_pending(checkpoint_id, now, request.properties, step.plan.vertices)
        self._outbox.put(SetTimer(ExpiryTimer(checkpoint_id), self._context.config.timeout_ms / 1000))
        self._outbox.do(MakeLocation(checkpoint_id, request.properties.kind, request.target_directory))

    def id_not_allocated(self, step: AllocateId, error: Exception) -> None:
        self._is_allocating = False
        self._endings.fail_request(step.request, CheckpointException.of_trigger_error(error))

    def located(self, step: MakeLocation, location: CheckpointLocation) -> None:
        pending = self._endings.pending.get(step.checkpoint_id)
        if pending is None:
            self._endings.discard_files(step.checkpoint_id, location)
            return
        pending.location = location
        try:
            if self._ready_plan().vertices != pending.vertices:
                raise _tasks_not_running("The job's tasks changed while the checkpoint was being triggered.")
        except CheckpointException as exception:
            self._endings.abort(pending, exception)
        else:
            self._outbox.put(Send(self._trigger(pending, location)))

    def not_located(self, step: MakeLocation, error: Exception) -> None:
        pending = self._endings.pending.get(step.checkpoint_id)
        if pending is not None:
            self._endings.abort(pending, CheckpointException.of_trigger_error(error))

    def _check_global_state(self, request: CheckpointRequest) -> None:
        if self._is_closed:
            raise CheckpointException(_Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)
        if request.is_periodic and not self._periodic.is_running:
            raise CheckpointException(_Reason.PERIODIC_SCHEDULER_SHUTDOWN)
        if request.properties.is_savepoint and request.target_directory is None:
            raise CheckpointException(
                _Reason.TRIGGER_CHECKPOINT_FAILURE,
                "No savepoint directory was given and none is configured (execution.checkpointing.savepoint-dir).",
            )

    def _ready_plan(self) -> CheckpointPlan:
        plan = self._plan()
        if not plan.ready:
            raise _tasks_not_running(plan.reason)
        return plan

    def _trigger(self, pending: PendingCheckpoint, location: CheckpointLocation) -> TriggerCheckpoint:
        owed = self._endings.full_snapshot_owed and not pending.properties.is_savepoint
        return TriggerCheckpoint(
            session_id=self._context.session_id,
            checkpoint_id=pending.checkpoint_id,
            kind=pending.properties.kind,
            trigger_timestamp=pending.trigger_timestamp,
            timeout_ms=self._context.config.timeout_ms,
            directory=location.directory,
            shared_directory=location.shared_directory,
            full=pending.request.full or owed,
        )


def _tasks_not_running(cause: str) -> CheckpointException:
    return CheckpointException(_Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, cause)
