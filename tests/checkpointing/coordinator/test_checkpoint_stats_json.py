"""Waymark's JSON has exactly the keys and types of values of a real Flink, from which samples were recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkpointing.coordinator import stats_json
from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.coordinator.stats_model import CheckpointStatsSnapshot
from checkpointing.model.messages import SubtaskMetrics
from tests.checkpointing.doubles import SOURCE, STATEFUL, CoordinatorHarness

SAMPLES = Path(__file__).parent.parent / "samples"


def sample(name: str) -> dict[str, Any]:
    """Return a recorded answer, without the status line that follows the JSON in some samples."""
    parsed, _ = json.JSONDecoder().raw_decode((SAMPLES / name).read_text())
    assert isinstance(parsed, dict)
    return parsed


def shape(value: Any) -> Any:
    """Return a value's keys and types. Integers and other numbers are different types."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


@pytest.fixture
def harness() -> CoordinatorHarness:
    """Return a coordinator that was restored from checkpoint 1.

    Checkpoints 1 and 4 and savepoint 3 are completed, checkpoint 2 has failed, and checkpoint 5 is pending.
    """
    harness = CoordinatorHarness(tolerable_failures=5)
    first = harness.complete_one()
    harness.coordinator.trigger_checkpoint()
    harness.decline(2)
    harness.coordinator.trigger_savepoint(None)
    harness.acknowledge_all(3)
    harness.complete_one()
    harness.coordinator.restored(first, is_savepoint=False)
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge(5, STATEFUL.id, 1, metrics=SubtaskMetrics(sync_duration=2, async_duration=3, start_delay=4))
    return harness


@pytest.fixture
def snapshot(harness: CoordinatorHarness) -> CheckpointStatsSnapshot:
    return harness.stats.snapshot()


def test_before_the_first_checkpoint_the_answer_equals_flinks() -> None:
    ours = stats_json.checkpoints(CheckpointStatsTracker().snapshot())
    assert json.loads(json.dumps(ours)) == sample("checkpoints_early.txt")


def test_the_list_has_flinks_keys(snapshot: CheckpointStatsSnapshot) -> None:
    ours, theirs = stats_json.checkpoints(snapshot), sample("checkpoints_after_decline.txt")
    assert shape(ours["counts"]) == shape(theirs["counts"])
    assert shape(ours["summary"]) == shape(theirs["summary"])
    assert shape(ours["latest"]["completed"]) == shape(theirs["latest"]["completed"])
    assert shape(ours["latest"]["savepoint"]) == shape(theirs["latest"]["savepoint"])
    assert shape(ours["latest"]["failed"]) == shape(theirs["latest"]["failed"])
    assert shape(ours["latest"]["restored"]) == shape(theirs["latest"]["restored"])
    assert set(ours) == set(theirs)
    assert [entry["id"] for entry in ours["history"]] == [5, 4, 3, 2, 1]


def test_the_same_numbers_give_the_same_summary() -> None:
    theirs = sample("checkpoints.json")
    harness = CoordinatorHarness(vertices=(SOURCE,))
    for entry in reversed(theirs["history"]):
        harness.coordinator.trigger_checkpoint()
        harness.clock.advance(entry["end_to_end_duration"] / 1000)
        metrics = SubtaskMetrics(
            checkpointed_size=entry["checkpointed_size"],
            state_size=entry["state_size"],
            processed_data=entry["processed_data"],
        )
        harness.acknowledge(entry["id"], SOURCE.id, 0, metrics=metrics)
    assert stats_json.checkpoints(harness.stats.snapshot())["summary"] == theirs["summary"]


def test_a_pending_checkpoint_has_neither_path_nor_failure(snapshot: CheckpointStatsSnapshot) -> None:
    entry = stats_json.checkpoints(snapshot)["history"][0]
    assert (entry["className"], entry["status"]) == ("in_progress", "IN_PROGRESS")
    completed = sample("checkpoints.json")["history"][0]
    assert set(entry) == set(completed) - {"external_path", "discarded"}
    assert entry["num_acknowledged_subtasks"] == 1


def test_details_have_flinks_keys(snapshot: CheckpointStatsSnapshot) -> None:
    statistics = snapshot.find(4)
    assert statistics is not None
    ours, theirs = stats_json.checkpoint_details(statistics), sample("checkpoint_details.txt")
    assert set(ours) == set(theirs)
    assert set(ours["tasks"]) == {SOURCE.id, STATEFUL.id}
    assert shape(ours["tasks"][SOURCE.id]) == shape(next(iter(theirs["tasks"].values())))
    assert ours["tasks"][STATEFUL.id]["num_subtasks"] == 2
    assert ours["external_path"] == "file:/checkpoints/chk-4"
    assert json.loads(json.dumps(ours)) == ours


def test_subtasks_have_flinks_keys(snapshot: CheckpointStatsSnapshot) -> None:
    statistics = snapshot.find(4)
    assert statistics is not None
    ours = stats_json.checkpoint_subtasks(statistics, STATEFUL.id)
    assert ours is not None
    theirs = sample("checkpoint_subtasks.txt")
    assert shape(ours) == shape(theirs)
    for constant in ("className", "unaligned_checkpoint", "aborted", "status"):
        assert ours["subtasks"][0][constant] == theirs["subtasks"][0][constant]
    assert ours["summary"]["checkpointed_size"] == {
        **dict.fromkeys(("p50", "p90", "p95", "p99", "p999"), "NaN"), "min": 10, "max": 10, "avg": 10,
    }  # fmt: skip


def test_a_subtask_that_has_not_acknowledged_is_pending_or_failed(snapshot: CheckpointStatsSnapshot) -> None:
    statistics = snapshot.find(5)
    assert statistics is not None
    ours = stats_json.checkpoint_subtasks(statistics, STATEFUL.id)
    assert ours is not None
    assert ours["subtasks"][0] == {"className": "pending", "index": 0, "status": "pending_or_failed"}
    assert ours["subtasks"][1]["checkpoint"] == {"sync": 2, "async": 3}
    assert ours["subtasks"][1]["start_delay"] == 4


def test_a_vertex_missing_in_the_checkpoint_has_no_details(snapshot: CheckpointStatsSnapshot) -> None:
    statistics = snapshot.find(4)
    assert statistics is not None
    assert stats_json.checkpoint_subtasks(statistics, "c" * 32) is None


def test_only_local_paths_become_file_addresses() -> None:
    assert stats_json.external_path("/data/chk-1") == "file:/data/chk-1"
    assert stats_json.external_path("s3://bucket/chk-1") == "s3://bucket/chk-1"
