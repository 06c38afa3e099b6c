"""From a chosen request to the message that starts the tasks: id, pending checkpoint, location, trigger.

At most one request is in the pipeline. Each blocking step may end after the checkpoint it was for; then its result is
handed back (a location that nobody wants is discarded) and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from checkpointing.coordinator.pending import PendingCheckpoint
from checkpointing.coordinator.ports import (
    CheckpointIDCounter,
    CheckpointLocation,
    CheckpointPlan,
    CheckpointStorage,
    IoExecutor,
)
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest


@dataclass(frozen=True)
class TriggerHost:
    """What the pipeline asks of the coordinator, all on its thread.

    `check_global_state(request)` raises CheckpointException when the request may not run (any more). `trigger_failed`
    gets the pending checkpoint if there is one already. `trigger_ended`: the pipeline is free again.
    """

    check_global_state: Callable[[CheckpointRequest], None]
    create_pending: Callable[[CheckpointRequest, CheckpointPlan, int], PendingCheckpoint]
    send_trigger: Callable[[PendingCheckpoint, CheckpointLocation], None]
    trigger_failed: Callable[[CheckpointRequest, PendingCheckpoint | None, CheckpointException], None]
    discard_unwanted: Callable[[CheckpointLocation], None]
    trigger_ended: Callable[[], None]


class TriggerPipeline:
    def __init__(
        self,
        *,
        host: TriggerHost,
        plan: Callable[[], CheckpointPlan],
        id_counter: CheckpointIDCounter,
        storage: CheckpointStorage,
        io: IoExecutor,
    ) -> None:
        self._host = host
        self._plan = plan
        self._id_counter = id_counter
        self._storage = storage
        self._io = io
        self._current: CheckpointRequest | None = None
        self._least_id = 0

    @property
    def is_triggering(self) -> bool:
        return self._current is not None

    def raise_ids_to(self, least_id: int) -> None:
        """No checkpoint gets an id below `least_id` from now on; ids never go down."""
        self._least_id = max(self._least_id, least_id)

    def start(self, request: CheckpointRequest) -> None:
        self._current = request
        try:
            self._host.check_global_state(request)
            plan = self._ready_plan()
        except CheckpointException as exception:
            self._fail(request, None, exception)
            return
        self._io.submit(
            self._allocate_id, partial(self._id_assigned, request, plan), partial(self._id_not_assigned, request)
        )

    def abandon(self, request: CheckpointRequest) -> None:
        """The checkpoint of `request` was aborted: if it is still in the pipeline, make room for the next."""
        if self._current is request:
            self._current = None

    def _allocate_id(self) -> int:
        if self._id_counter.get() < self._least_id:
            self._id_counter.set_count(self._least_id)
        return self._id_counter.get_and_increment()

    def _id_assigned(self, request: CheckpointRequest, plan: CheckpointPlan, checkpoint_id: int) -> None:
        try:
            self._host.check_global_state(request)
        except CheckpointException as exception:
            self._fail(request, None, exception)
            return
        pending = self._host.create_pending(request, plan, checkpoint_id)
        self._io.submit(
            lambda: self._storage.initialize_location(checkpoint_id, request.properties.kind, request.target_directory),
            partial(self._located, pending, plan),
            partial(self._not_located, pending),
        )

    def _id_not_assigned(self, request: CheckpointRequest, error: Exception) -> None:
        self._fail(request, None, CheckpointException.of_trigger_error(error))

    def _located(self, pending: PendingCheckpoint, plan: CheckpointPlan, location: CheckpointLocation) -> None:
        if pending.is_aborted:
            self._host.discard_unwanted(location)
            return
        pending.location = location
        try:
            if self._ready_plan().vertices != plan.vertices:
                raise _tasks_not_running("The job's tasks changed while the checkpoint was being triggered.")
        except CheckpointException as exception:
            self._fail(pending.request, pending, exception)
            return
        self._host.send_trigger(pending, location)
        self.abandon(pending.request)
        self._host.trigger_ended()

    def _not_located(self, pending: PendingCheckpoint, error: Exception) -> None:
        if not pending.is_aborted:
            self._fail(pending.request, pending, CheckpointException.of_trigger_error(error))

    def _ready_plan(self) -> CheckpointPlan:
        plan = self._plan()
        if not plan.ready:
            raise _tasks_not_running(plan.reason)
        return plan

    def _fail(
        self, request: CheckpointRequest, pending: PendingCheckpoint | None, exception: CheckpointException
    ) -> None:
        self.abandon(request)
        self._host.trigger_failed(request, pending, exception)
        self._host.trigger_ended()


def _tasks_not_running(cause: str) -> CheckpointException:
    return CheckpointException(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, cause)
