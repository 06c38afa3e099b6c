"""Passes events to the checkpoint coordinator of a job and performs the resulting effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, assert_never

from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.effects import (
    AddCheckpoint,
    AddClaimed,
    Added,
    AllocateId,
    CancelTimer,
    CloseCounter,
    CloseStore,
    Do,
    Effect,
    FailJob,
    MakeLocation,
    ReadStore,
    Reject,
    RemoveEmptyDirectories,
    RemoveShared,
    RemoveSnapshot,
    ReportLeftBehind,
    Resolve,
    Send,
    SetTimer,
    Step,
    TimerName,
    WriteMetadata,
)
from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.ha.checkpoint_id_counter import CheckpointIDCounter
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.jobs.loop import Cancellable, LoopIoExecutor, Timer
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import JobManagerMessage
from checkpointing.storage.checkpoint_storage import FileCheckpointStorage

P = ParamSpec("P")
T = TypeVar("T")

FailTheJob = Callable[[str, CheckpointException], None]
LeftBehind = Callable[[str, Exception], None]


class CoordinatorSteps:
    """Performs the coordinator's steps with the storage, the store and the ID counter of one job. All methods block."""

    def __init__(
        self, storage: FileCheckpointStorage, store: HandleCompletedCheckpointStore, id_counter: CheckpointIDCounter
    ) -> None:
        self._storage = storage
        self._store = store
        self._id_counter = id_counter

    def take(self, step: Step) -> Any:
        """Perform `step`. Return the result that the class of `step` documents."""
        match step:
            case AllocateId():
                self._raise_ids_to(step.least_id)
                return self._id_counter.get_and_increment()
            case AddCheckpoint():
                return self._add(step)
            case ReadStore():
                self._store.recover()
                return tuple(self._store.checkpoints)
            case AddClaimed():
                # Raise the counter first: no checkpoint with a lower ID may follow the claimed one in the store.
                self._raise_ids_to(step.checkpoint.checkpoint_id + 1)
                self._store.add_checkpoint(step.checkpoint)
                return tuple(self._store.checkpoints)
            case CloseStore():
                return self._store.shutdown(step.status)
            case CloseCounter():
                self._id_counter.shutdown(step.status)
            case _:
                return self._take_on_storage(step)
        return None

    def _take_on_storage(
        self, step: MakeLocation | WriteMetadata | RemoveSnapshot | RemoveShared | RemoveEmptyDirectories
    ) -> Any:
        match step:
            case MakeLocation():
                return self._storage.initialize_location(step.checkpoint_id, step.kind, step.target_directory)
            case WriteMetadata():
                return self._storage.write_metadata(step.checkpoint)
            case RemoveEmptyDirectories():
                self._storage.remove_empty_directories()
            case RemoveSnapshot(location, is_claimed=True):
                self._storage.discard_claimed(location.directory)
            case RemoveSnapshot(location):
                self._storage.discard_location(location)
            case RemoveShared():
                self._storage.discard_shared(step.files)
            case _:
                assert_never(step)
        return None

    def _raise_ids_to(self, least_id: int) -> None:
        if self._id_counter.get() < least_id:
            self._id_counter.set_count(least_id)

    def _add(self, step: AddCheckpoint) -> Added:
        """Add the checkpoint, then withdraw uncertain ones: until then, an uncertain one may be the newest stored."""
        dropped = self._store.add_checkpoint(step.checkpoint)
        withdrawn = tuple(old for old in step.uncertain if self._store.withdraw(old))
        return Added(tuple(self._store.checkpoints), dropped, withdrawn)


def _event(
    method: Callable[[CheckpointCoordinator], Callable[P, T]],
) -> Callable[Concatenate[CoordinatorRunner, P], T]:
    """Return a runner method that calls `method` of the coordinator and performs the effects."""

    def pass_on(self: CoordinatorRunner, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = method(self._coordinator)(*args, **kwargs)
        self._perform_effects()
        return result

    return pass_on


class CoordinatorRunner:
    """Runs a coordinator on one thread, where it also completes the futures that the events return."""

    def __init__(
        self,
        coordinator: CheckpointCoordinator,
        steps: CoordinatorSteps,
        *,
        io: LoopIoExecutor,
        timer: Timer,
        send: Callable[[JobManagerMessage], None],
        fail_job: FailTheJob,
        left_behind: LeftBehind,
    ) -> None:
        """Connect `coordinator` with its surroundings.

        Args:
            send: never blocks and never raises; the driver reports a lost message in another way.
            fail_job: gets a message and the exception if more checkpoints failed than the job tolerates. The event
                raises what it raises; the remaining effects are performed with the next event.
            left_behind: gets the error and a description of files that could not be removed after all retries.
        """
        self._coordinator = coordinator
        self._steps = steps
        self._io = io
        self._timer = timer
        self._send = send
        self._fail_job = fail_job
        self._left_behind = left_behind
        self._timers: dict[TimerName, Cancellable] = {}
        self._effects: deque[Effect] = deque()
        self._is_performing = False

    # --- state of the coordinator -----------------------------------------------------------------------------------

    @property
    def pending_ids(self) -> tuple[int, ...]:
        return self._coordinator.pending_ids

    @property
    def latest_completed(self) -> CompletedCheckpoint | None:
        return self._coordinator.latest_completed

    @property
    def uncertain_ids(self) -> tuple[int, ...]:
        return self._coordinator.uncertain_ids

    # --- events: their contracts are those of the coordinator's methods ---------------------------------------------

    trigger_checkpoint = _event(lambda coordinator: coordinator.trigger_checkpoint)
    trigger_savepoint = _event(lambda coordinator: coordinator.trigger_savepoint)
    trigger_synchronous_savepoint = _event(lambda coordinator: coordinator.trigger_synchronous_savepoint)
    start_periodic = _event(lambda coordinator: coordinator.start_periodic)
    trigger_periodic_now = _event(lambda coordinator: coordinator.trigger_periodic_now)
    stop_periodic = _event(lambda coordinator: coordinator.stop_periodic)
    abort_pending = _event(lambda coordinator: coordinator.abort_pending)
    settled = _event(lambda coordinator: coordinator.settled)
    savepoints_written = _event(lambda coordinator: coordinator.savepoints_written)
    cleaned = _event(lambda coordinator: coordinator.cleaned)
    next_completed = _event(lambda coordinator: coordinator.next_completed)
    shutdown = _event(lambda coordinator: coordinator.shutdown)
    abandon_shutdown = _event(lambda coordinator: coordinator.abandon_shutdown)
    _step_done = _event(lambda coordinator: coordinator.step_done)
    _step_failed = _event(lambda coordinator: coordinator.step_failed)
    _timer_fired = _event(lambda coordinator: coordinator.timer_fired)

    recover = _event(lambda coordinator: coordinator.restoring.recover)
    found = _event(lambda coordinator: coordinator.restoring.found)
    swept = _event(lambda coordinator: coordinator.restoring.swept)
    unused = _event(lambda coordinator: coordinator.restoring.unused)
    claim = _event(lambda coordinator: coordinator.restoring.claim)
    restored = _event(lambda coordinator: coordinator.restoring.restored)
    continue_from_unclaimed = _event(lambda coordinator: coordinator.restoring.continue_from_unclaimed)

    acknowledge = _event(lambda coordinator: coordinator.answers.acknowledge)
    decline = _event(lambda coordinator: coordinator.answers.decline)
    delay = _event(lambda coordinator: coordinator.answers.delay)

    # --- effects ----------------------------------------------------------------------------------------------------

    def _perform_effects(self) -> None:
        """Perform the effects of an event. If an effect causes another event, the outer call performs its effects."""
        self._effects.extend(self._coordinator.take_effects())
        if not self._effects or self._is_performing:
            return
        self._is_performing = True
        try:
            while self._effects:
                self._perform(self._effects.popleft())
        finally:
            self._is_performing = False

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect.message)
            case Do(step):
                take = partial(self._steps.take, step)
                self._io.submit(take, partial(self._step_done, step), partial(self._step_failed, step))
            case SetTimer():
                self._cancel(effect.timer)
                fire = partial(self._fire, effect.timer)
                self._timers[effect.timer] = self._timer.call_later(effect.delay_s, fire)
            case CancelTimer():
                self._cancel(effect.timer)
            case Resolve():
                effect.future.set_result(effect.result)
            case Reject():
                effect.future.set_exception(effect.error)
            case FailJob():
                self._fail_job(effect.message, effect.exception)
            case ReportLeftBehind():
                self._left_behind(effect.what, effect.error)
            case _:
                assert_never(effect)

    def _cancel(self, timer: TimerName) -> None:
        if (handle := self._timers.pop(timer, None)) is not None:
            handle.cancel()

    def _fire(self, timer: TimerName) -> None:
        del self._timers[timer]
        self._timer_fired(timer)
