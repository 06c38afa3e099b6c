"""The statistics tracker and its snapshots (Flink's D and I lists)."""

from __future__ import annotations

import dataclasses

import pytest

from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.coordinator.stats_model import (
    CheckpointStatsStatus,
    Distribution,
    Quantiles,
    RunningSummary,
    distribution_without_quantiles,
    quantiles_of,
)
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import CheckpointKind, SubtaskMetrics
from tests.checkpointing.doubles import JOB_ID, SOURCE, STATEFUL, VERTICES

TRIGGERED = 10_000


def properties(kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> CheckpointProperties:
    return CheckpointProperties(kind, RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS)


def pending(
    tracker: CheckpointStatsTracker, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT
) -> None:
    tracker.report_pending(checkpoint_id, TRIGGERED, properties(kind), VERTICES)


def complete(
    tracker: CheckpointStatsTracker, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT
) -> None:
    pending(tracker, checkpoint_id, kind)
    for vertex in VERTICES:
        for index in range(vertex.parallelism):
            metrics = SubtaskMetrics(checkpointed_size=checkpoint_id, state_size=2, processed_data=3, persisted_data=4)
            assert tracker.report_subtask(checkpoint_id, vertex.id, index, metrics, TRIGGERED + 5)
    tracker.report_completed(checkpoint_id, completed(checkpoint_id, kind))


def completed(checkpoint_id: int, kind: CheckpointKind) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        job_id=JOB_ID,
        job_name="wordcount",
        entry_class="w:w",
        checkpoint_id=checkpoint_id,
        properties=properties(kind),
        trigger_timestamp=TRIGGERED,
        completion_timestamp=TRIGGERED + 5,
        operators=(),
        batches={},
        location=f"/c/{checkpoint_id}",
        shared_location=None,
    )


def test_conformance_i01_restores_are_not_attempts_and_failures_without_id_are() -> None:
    tracker = CheckpointStatsTracker()
    tracker.report_restored(5, restore_timestamp=1, is_savepoint=True, external_path="/s")
    tracker.report_failed_without_pending()
    pending(tracker, 1)
    counts = tracker.snapshot().counts
    assert (counts.restored, counts.total, counts.in_progress, counts.failed) == (1, 2, 1, 1)


def test_conformance_i03_a_snapshot_does_not_change_later() -> None:
    tracker = CheckpointStatsTracker()
    pending(tracker, 1)
    before = tracker.snapshot()
    tracker.report_subtask(1, SOURCE.id, 0, SubtaskMetrics(state_size=9), TRIGGERED + 1)
    tracker.report_failed(1, TRIGGERED + 2, "no")
    assert before.history[0].status is CheckpointStatsStatus.IN_PROGRESS
    assert before.history[0].totals.num_acknowledged == 0
    assert before.history[0].tasks[0].subtasks == (None,)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.counts = before.counts  # type: ignore[misc]


def test_conformance_i12_the_same_snapshot_until_something_changes() -> None:
    tracker = CheckpointStatsTracker()
    complete(tracker, 1)
    first = tracker.snapshot()
    assert tracker.snapshot() is first
    assert not tracker.report_subtask(99, SOURCE.id, 0, SubtaskMetrics(), 1)
    assert tracker.snapshot() is first
    tracker.report_discarded(1)
    assert tracker.snapshot() is not first


def test_conformance_i04_without_history_the_latest_are_still_found() -> None:
    tracker = CheckpointStatsTracker(history_size=0)
    complete(tracker, 1)
    snapshot = tracker.snapshot()
    assert snapshot.history == ()
    found = snapshot.find(1)
    assert found is not None
    assert found == snapshot.latest_completed
    assert snapshot.counts.completed == 1
    assert snapshot.summary.state_size.maximum == 6


def test_conformance_i05_a_checkpoint_evicted_while_pending_still_counts() -> None:
    tracker = CheckpointStatsTracker(history_size=1)
    pending(tracker, 1)
    pending(tracker, 2)
    assert [entry.checkpoint_id for entry in tracker.snapshot().history] == [2]
    tracker.report_failed(1, TRIGGERED + 7, "no")
    snapshot = tracker.snapshot()
    assert (snapshot.counts.failed, snapshot.counts.in_progress) == (1, 1)
    assert [entry.checkpoint_id for entry in snapshot.history] == [2]


def test_the_history_is_bounded_and_newest_first() -> None:
    tracker = CheckpointStatsTracker(history_size=3)
    for checkpoint_id in range(1, 6):
        complete(tracker, checkpoint_id)
    assert [entry.checkpoint_id for entry in tracker.snapshot().history] == [5, 4, 3]
    assert tracker.snapshot().find(1) is None


def test_conformance_i09_completed_failed_savepoint_and_pending_side_by_side() -> None:
    tracker = CheckpointStatsTracker()
    complete(tracker, 0)
    pending(tracker, 1)
    tracker.report_failed(1, TRIGGERED + 100, "Checkpoint expired before completing.")
    complete(tracker, 2, CheckpointKind.SAVEPOINT)
    pending(tracker, 3)
    tracker.report_failed_without_pending()

    snapshot = tracker.snapshot()
    assert (snapshot.counts.total, snapshot.counts.completed, snapshot.counts.failed) == (5, 2, 2)
    assert snapshot.counts.in_progress == 1
    assert snapshot.latest_completed is not None
    assert snapshot.latest_savepoint is not None
    assert snapshot.latest_failed is not None
    assert snapshot.latest_completed.checkpoint_id == 0
    assert snapshot.latest_savepoint.checkpoint_id == 2
    assert snapshot.latest_failed.checkpoint_id == 1
    assert (snapshot.summary.checkpointed_size.minimum, snapshot.summary.checkpointed_size.maximum) == (0, 6)
    assert [entry.checkpoint_id for entry in snapshot.history] == [3, 2, 1, 0]


def test_conformance_d17_each_subtask_reports_once_and_adds_up() -> None:
    tracker = CheckpointStatsTracker()
    pending(tracker, 1)
    before = tracker.snapshot().history[0]
    assert (before.totals.latest_ack_timestamp, before.end_to_end_duration, before.totals.state_size) == (-1, -1, 0)

    assert not tracker.report_subtask(1, "c" * 32, 0, SubtaskMetrics(), TRIGGERED)
    assert not tracker.report_subtask(1, STATEFUL.id, 2, SubtaskMetrics(), TRIGGERED)
    assert tracker.report_subtask(1, STATEFUL.id, 1, SubtaskMetrics(state_size=5), TRIGGERED + 30)
    assert not tracker.report_subtask(1, STATEFUL.id, 1, SubtaskMetrics(state_size=50), TRIGGERED + 60)
    assert tracker.report_subtask(1, SOURCE.id, 0, SubtaskMetrics(state_size=2), TRIGGERED + 20)

    after = tracker.snapshot().history[0]
    assert (after.totals.latest_ack_timestamp, after.end_to_end_duration) == (TRIGGERED + 30, 30)
    assert (after.totals.state_size, after.totals.num_acknowledged, after.num_subtasks) == (7, 2, 3)
    task = after.task(STATEFUL.id)
    assert task is not None
    assert task.subtasks[0] is None
    assert task.subtasks[1] is not None
    assert task.subtasks[1].end_to_end_duration == 30
    assert task.totals.num_acknowledged == 1


def test_conformance_d18_a_completed_checkpoint_can_be_marked_as_discarded() -> None:
    tracker = CheckpointStatsTracker()
    complete(tracker, 1)
    latest = tracker.snapshot().latest_completed
    assert latest is not None
    assert (latest.external_path, latest.discarded) == ("/c/1", False)
    tracker.report_discarded(1)
    latest = tracker.snapshot().latest_completed
    assert latest is not None
    assert latest.discarded
    assert tracker.snapshot().history[0].discarded


def test_conformance_d19_a_failed_checkpoint_keeps_when_and_why() -> None:
    tracker = CheckpointStatsTracker()
    pending(tracker, 1)
    tracker.report_subtask(1, SOURCE.id, 0, SubtaskMetrics(), TRIGGERED + 35)
    tracker.report_failed(1, TRIGGERED + 201, "Checkpoint Coordinator is suspending.")
    failed = tracker.snapshot().latest_failed
    assert failed is not None
    assert (failed.failure_timestamp, failed.end_to_end_duration) == (TRIGGERED + 201, 201)
    assert failed.failure_message == "Checkpoint Coordinator is suspending."


def test_a_later_restore_replaces_the_earlier() -> None:
    tracker = CheckpointStatsTracker()
    tracker.report_restored(1, restore_timestamp=1, is_savepoint=True, external_path="/s")
    tracker.report_restored(2, restore_timestamp=2, is_savepoint=False, external_path=None)
    snapshot = tracker.snapshot()
    assert snapshot.counts.restored == 2
    assert snapshot.latest_restored is not None
    assert snapshot.latest_restored.checkpoint_id == 2


def test_conformance_i16_quantiles_are_flinks_estimate() -> None:
    """Compare with the REST API of a running Flink, which gave these quantiles for six durations."""
    assert quantiles_of([59, 76, 78, 84, 98, 563]) == Quantiles(81.0, 563.0, 563.0, 563.0, 563.0)
    assert quantiles_of([21, 42, 105, 126, 147, 168]) == Quantiles(115.5, 168.0, 168.0, 168.0, 168.0)
    assert quantiles_of([7]) == Quantiles(7.0, 7.0, 7.0, 7.0, 7.0)
    # With so many values, each quantile lies between two of them.
    assert dataclasses.astuple(quantiles_of(range(1, 2001))) == pytest.approx(
        (1000.5, 1800.9, 1900.95, 1980.99, 1998.999)
    )


def test_the_summary_remembers_extremes_longer_than_its_window() -> None:
    summary = RunningSummary(window=3)
    for value in (100, 1, 2, 3):
        summary.add(value)
    distribution = summary.distribution()
    assert (distribution.minimum, distribution.maximum, distribution.average) == (1, 100, 26)
    assert distribution.quantiles == Quantiles(2.0, 3.0, 3.0, 3.0, 3.0)


def test_a_negative_history_size_is_refused() -> None:
    with pytest.raises(ValueError, match="history_size: -1"):
        CheckpointStatsTracker(history_size=-1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4, -1, 8], Distribution(4, 8, 6)),
        ([-1, -1], Distribution(-1, -1, -1)),
        ([], Distribution()),
    ],
)
def test_a_figure_that_is_unknown_of_a_subtask_does_not_count(values: list[int], expected: Distribution) -> None:
    assert distribution_without_quantiles(values) == expected
