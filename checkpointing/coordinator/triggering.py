"""From a chosen request to the message that starts the tasks: id, pending checkpoint, location, trigger.

At most one request is in the pipeline. A step may end after the checkpoint it was for; then only its result is cleaned
up: a location that nobody needs is discarded.
"""

from __future__ import annotations

from collections.abc import Callable

from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import AllocateId, ExpiryTimer, MakeLocation, Send, SetTimer
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.pending import PendingCheckpoint
from checkpointing.coordinator.periodic import PeriodicScheduler
from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest
from checkpointing.model.messages import TriggerCheckpoint

_Reason = CheckpointFailureReason


class TriggerPipeline:
    """`plan` returns who must acknowledge, as of now."""

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
        """The coordinator shuts down: a request whose id is being allocated fails."""
        self._is_closed = True

    def raise_ids_to(self, least_id: int) -> None:
        """No checkpoint gets an id below `least_id` from now on; ids never go down."""
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
