"""The coordinator turns events into an ordered list of effects."""

from __future__ import annotations

import pytest

from checkpointing.clock import ManualClock
from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.effects import (
    AddCheckpoint,
    Added,
    AllocateId,
    CancelTimer,
    Do,
    Effect,
    ExpiryTimer,
    MakeLocation,
    RemoveSnapshot,
    Resolve,
    Send,
    SetTimer,
    Step,
    WriteMetadata,
)
from checkpointing.coordinator.pending import JobIdentity
from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.model.checkpoint import RetentionPolicy
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointKind,
    NotifyComplete,
    SubtaskMetrics,
    TriggerCheckpoint,
)
from tests.checkpointing.doubles import JOB_ID, SOURCE, CoordinatorHarness

LOCATION = CheckpointLocation("/checkpoints/chk-1", "/checkpoints/shared")


@pytest.fixture
def coordinator() -> CheckpointCoordinator:
    job = JobIdentity(JOB_ID, "wordcount", "wordcount:wordcount")
    config = CheckpointConfiguration(timeout_ms=60_000, retention=RetentionPolicy.RETAIN_ON_CANCELLATION)
    plan = CheckpointPlan((SOURCE,), ready=True)
    return CheckpointCoordinator(job, "session-1", config, ManualClock(), lambda: plan)


def after(coordinator: CheckpointCoordinator, effect: Effect, result: object) -> list[Effect]:
    """Report the end of the step that `effect` requests, and return the effects that follow."""
    assert isinstance(effect, Do)
    coordinator.step_done(effect.step, result)
    return coordinator.take_effects()


def acknowledged(coordinator: CheckpointCoordinator) -> Step:
    """Return the step that follows when all subtasks have acknowledged checkpoint 1."""
    coordinator.trigger_checkpoint()
    (allocate,) = coordinator.take_effects()
    _, locate = after(coordinator, allocate, 1)
    after(coordinator, locate, LOCATION)
    coordinator.answers.acknowledge(
        AcknowledgeCheckpoint("session-1", JOB_ID, 1, 1, SOURCE.id, 0, SubtaskMetrics(), (), {})
    )
    (write,) = coordinator.take_effects()
    assert isinstance(write, Do)
    return write.step


def test_a_trigger_requests_one_step_after_the_other(coordinator: CheckpointCoordinator) -> None:
    coordinator.trigger_checkpoint()

    (allocate,) = coordinator.take_effects()
    assert isinstance(allocate, Do)
    assert isinstance(allocate.step, AllocateId)
    effects = after(coordinator, allocate, 1)
    assert effects == [SetTimer(ExpiryTimer(1), 60.0), Do(MakeLocation(1, CheckpointKind.CHECKPOINT, None))]
    (send,) = after(coordinator, effects[1], LOCATION)
    assert isinstance(send, Send)
    assert isinstance(send.message, TriggerCheckpoint)
    assert coordinator.take_effects() == []


def test_a_checkpoint_ends_before_the_next_one_starts(coordinator: CheckpointCoordinator) -> None:
    write = acknowledged(coordinator)
    assert isinstance(write, WriteMetadata)
    first = write.checkpoint
    coordinator.trigger_checkpoint()
    cancel, add = after(coordinator, Do(write), 7)
    assert cancel == CancelTimer(ExpiryTimer(1))
    assert add == Do(AddCheckpoint(first, uncertain=()))

    notify, remove, resolve, allocate = after(coordinator, add, Added((first,), dropped=[first]))

    assert notify == Send(NotifyComplete("session-1", 1, 1))
    assert remove == Do(RemoveSnapshot(LOCATION))
    assert isinstance(resolve, Resolve)
    assert resolve.result is first
    assert isinstance(allocate, Do)
    assert isinstance(allocate.step, AllocateId)


def test_error_of_fail_job_leaves_remaining_effects_to_the_next_event(harness: CoordinatorHarness) -> None:
    harness.fail_job_error = RuntimeError("the job is failing")
    harness.coordinator.trigger_checkpoint()
    waiting = harness.coordinator.trigger_checkpoint()
    with pytest.raises(RuntimeError, match="the job is failing"):
        harness.decline(1)
    assert harness.triggered_ids == [1]

    harness.decline(99)

    assert harness.triggered_ids == [1, 2]
    harness.acknowledge_all(2)
    assert waiting.done()
