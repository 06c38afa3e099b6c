"""A pending checkpoint (Flink's D list)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpointing.coordinator.pending import (
    AcknowledgeOutcome,
    IllegalCheckpointState,
    JobIdentity,
    PendingCheckpoint,
)
from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest
from checkpointing.model.checkpoint import CheckpointProperties, RetentionPolicy
from checkpointing.model.messages import AcknowledgeCheckpoint, CheckpointKind, SubtaskMetrics, Vertex, VertexKind
from tests.checkpointing.doubles import JOB_ID, SOURCE, STATEFUL, VERTICES, CoordinatorHarness

Reason = CheckpointFailureReason
JOB = JobIdentity(JOB_ID, "wordcount", "wordcount:wordcount")


def pending(
    kind: CheckpointKind = CheckpointKind.CHECKPOINT, vertices: tuple[Vertex, ...] = VERTICES
) -> PendingCheckpoint:
    properties = CheckpointProperties(kind, RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS, forced=kind.is_savepoint)
    checkpoint = PendingCheckpoint(
        checkpoint_id=1,
        request=CheckpointRequest(properties, is_periodic=False),
        plan=CheckpointPlan(vertices, ready=True),
        trigger_timestamp=1_000,
    )
    checkpoint.location = CheckpointLocation("/checkpoints/chk-1", "/checkpoints/shared")
    return checkpoint


def ack(vertex_id: str, subtask: int, batch: int = 7) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint("session", JOB_ID, 1, 1, vertex_id, subtask, SubtaskMetrics(), (), {"q": batch})


def acknowledge_all(checkpoint: PendingCheckpoint) -> None:
    for vertex in checkpoint.vertices:
        for index in range(vertex.parallelism):
            assert checkpoint.acknowledge(ack(vertex.id, index), 2_000) is AcknowledgeOutcome.SUCCESS


def test_an_acknowledgement_is_a_success_once_then_a_duplicate() -> None:
    checkpoint = pending()
    assert (checkpoint.num_outstanding, checkpoint.num_acknowledged) == (3, 0)
    assert checkpoint.acknowledge(ack(SOURCE.id, 0), 2_000) is AcknowledgeOutcome.SUCCESS
    assert checkpoint.acknowledge(ack(SOURCE.id, 0), 3_000) is AcknowledgeOutcome.DUPLICATE
    assert checkpoint.acknowledge(ack(SOURCE.id, 1), 3_000) is AcknowledgeOutcome.UNKNOWN
    assert checkpoint.acknowledge(ack("c" * 32, 0), 3_000) is AcknowledgeOutcome.UNKNOWN
    assert (checkpoint.num_outstanding, checkpoint.num_acknowledged) == (2, 1)


def test_an_aborted_checkpoint_accepts_no_acknowledgement() -> None:
    checkpoint = pending()
    checkpoint.abort(CheckpointException(Reason.CHECKPOINT_EXPIRED))
    assert checkpoint.acknowledge(ack(SOURCE.id, 0), 2_000) is AcknowledgeOutcome.DISCARDED
    assert not checkpoint.is_fully_acknowledged


@pytest.mark.parametrize("kind", [CheckpointKind.SAVEPOINT, CheckpointKind.SYNC_SAVEPOINT])
def test_conformance_d01_d02_a_savepoint_cannot_be_subsumed(kind: CheckpointKind) -> None:
    savepoint = pending(kind)
    assert not savepoint.can_be_subsumed
    with pytest.raises(IllegalCheckpointState):
        savepoint.abort(CheckpointException(Reason.CHECKPOINT_SUBSUMED))
    assert pending().can_be_subsumed


def test_conformance_d03_only_a_fully_acknowledged_checkpoint_can_be_finalized() -> None:
    checkpoint = pending()
    checkpoint.acknowledge(ack(SOURCE.id, 0), 2_000)
    with pytest.raises(IllegalCheckpointState, match="waits for 2 subtasks"):
        checkpoint.finalize(JOB, 3_000)
    for index in range(2):
        checkpoint.acknowledge(ack(STATEFUL.id, index), 2_500)

    completed = checkpoint.finalize(JOB, 3_000)

    assert [(operator.vertex_id, operator.parallelism) for operator in completed.operators] == [
        (SOURCE.id, 1),
        (STATEFUL.id, 2),
    ]
    assert [subtask.index for subtask in completed.operators[1].subtasks] == [0, 1]
    assert (completed.trigger_timestamp, completed.completion_timestamp) == (1_000, 3_000)
    assert (completed.location, completed.shared_location) == ("/checkpoints/chk-1", "/checkpoints/shared")
    with pytest.raises(IllegalCheckpointState):
        checkpoint.finalize(JOB, 3_000)


@pytest.mark.parametrize("ends", [CoordinatorHarness.decline, CoordinatorHarness.acknowledge_all])
def test_conformance_d07_the_expiry_timer_ends_with_the_checkpoint(
    harness: CoordinatorHarness, ends: Callable[[CoordinatorHarness, int], None]
) -> None:
    harness.coordinator.trigger_checkpoint()
    (timer,) = harness.timer.pending

    ends(harness, 1)

    assert timer.cancelled
    assert harness.timer.pending == []


def test_another_batch_of_the_same_query_is_a_conflict() -> None:
    checkpoint = pending()
    checkpoint.acknowledge(ack(SOURCE.id, 0, batch=7), 2_000)
    assert checkpoint.conflicting_batch({"q": 7, "other": 3}) is None
    assert checkpoint.conflicting_batch({"q": 8}) == "query q was acknowledged at batch 7 and at batch 8"


def test_an_acknowledgement_takes_as_long_with_many_subtasks_as_with_few() -> None:
    """If each acknowledgement scanned all subtasks, the test would exceed its time limit."""
    wide = Vertex("d" * 32, "wide", VertexKind.STATEFUL, 50_000, "q")
    checkpoint = pending(vertices=(wide,))
    acknowledge_all(checkpoint)
    assert checkpoint.is_fully_acknowledged
