"""The checkpoint statistics as Flink's gauges."""

from __future__ import annotations

import pytest

from checkpointing.coordinator.stats_json import checkpoint_gauges
from checkpointing.model.checkpoint import RetentionPolicy
from checkpointing.model.messages import SubtaskMetrics
from tests.checkpointing.doubles import CoordinatorHarness


@pytest.fixture
def harness() -> CoordinatorHarness:
    return CoordinatorHarness(retention=RetentionPolicy.RETAIN_ON_CANCELLATION, tolerable_failures=5)


def gauges(harness: CoordinatorHarness) -> dict[str, int | str]:
    return checkpoint_gauges(harness.stats.snapshot())


def test_conformance_i13_the_gauges_have_the_names_of_flinks(harness: CoordinatorHarness) -> None:
    assert set(gauges(harness)) == {
        "totalNumberOfCheckpoints", "numberOfInProgressCheckpoints", "numberOfCompletedCheckpoints",
        "numberOfFailedCheckpoints", "lastCheckpointRestoreTimestamp", "lastCheckpointSize", "lastCheckpointFullSize",
        "lastCheckpointMetadataSize", "lastCheckpointDuration", "lastCheckpointProcessedData",
        "lastCheckpointPersistedData", "lastCheckpointExternalPath", "lastCompletedCheckpointId",
        "lastCheckpointCompletedTimestamp",
    }  # fmt: skip


def test_conformance_i14_the_gauges_follow_each_checkpoint(harness: CoordinatorHarness) -> None:
    first = gauges(harness)
    assert first.pop("lastCheckpointExternalPath") == "n/a"
    assert {name: value for name, value in first.items() if value != -1} == {
        "totalNumberOfCheckpoints": 0, "numberOfInProgressCheckpoints": 0,
        "numberOfCompletedCheckpoints": 0, "numberOfFailedCheckpoints": 0,
    }  # fmt: skip

    harness.coordinator.trigger_checkpoint()
    assert (gauges(harness)["numberOfInProgressCheckpoints"], gauges(harness)["lastCheckpointDuration"]) == (1, -1)
    harness.advance(2)
    now = harness.clock.now_ms()
    for vertex_id, subtask in harness.subtasks:
        metrics = SubtaskMetrics(checkpointed_size=10, state_size=20, processed_data=3, persisted_data=4)
        harness.acknowledge(1, vertex_id, subtask, metrics=metrics)
    after = gauges(harness)
    assert {name: after[name] for name in after if name.startswith("last")} == {
        "lastCompletedCheckpointId": 1,
        "lastCheckpointCompletedTimestamp": now,
        "lastCheckpointDuration": 2000,
        "lastCheckpointSize": 30,
        "lastCheckpointFullSize": 60,
        "lastCheckpointMetadataSize": 7,
        "lastCheckpointProcessedData": 9,
        "lastCheckpointPersistedData": 12,
        "lastCheckpointExternalPath": "file:/checkpoints/chk-1",
        "lastCheckpointRestoreTimestamp": -1,
    }

    harness.coordinator.trigger_checkpoint()
    harness.decline(2)
    assert gauges(harness) == after | {"totalNumberOfCheckpoints": 2, "numberOfFailedCheckpoints": 1}

    checkpoint = harness.coordinator.latest_completed
    assert checkpoint is not None
    harness.coordinator.restored(checkpoint, is_savepoint=False)
    assert gauges(harness)["lastCheckpointRestoreTimestamp"] == harness.clock.now_ms()


def test_the_last_one_may_be_a_savepoint(harness: CoordinatorHarness) -> None:
    harness.complete_one()
    harness.coordinator.trigger_savepoint(None)
    harness.acknowledge_all(2)

    assert gauges(harness)["lastCompletedCheckpointId"] == 2
    assert str(gauges(harness)["lastCheckpointExternalPath"]).startswith("file:/savepoints/savepoint-")
