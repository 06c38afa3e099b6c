"""A jump of the wall clock changes no timeout, pause or interval, and the shown durations remain plausible."""

from __future__ import annotations

import pytest

from checkpointing.coordinator.stats_model import CheckpointStatistics
from tests.checkpointing.doubles import CoordinatorHarness

JUMPS = pytest.mark.parametrize("seconds", [86_400, -86_400], ids=["forwards", "back"])


def shown(harness: CoordinatorHarness, checkpoint_id: int) -> CheckpointStatistics:
    found = harness.stats.snapshot().find(checkpoint_id)
    assert found is not None
    return found


@JUMPS
def test_a_pending_checkpoint_expires_after_its_timeout_and_not_before(seconds: int) -> None:
    harness = CoordinatorHarness(timeout_ms=60_000, tolerable_failures=5)
    future = harness.coordinator.trigger_checkpoint()

    harness.clock.jump(seconds)
    harness.advance(59)
    assert not future.done()
    harness.advance(1)

    assert future.done()
    failed = shown(harness, 1)
    assert failed.failure_timestamp >= failed.trigger_timestamp
    assert failed.end_to_end_duration == max(0, 60_000 + seconds * 1000)


@JUMPS
def test_the_interval_is_kept(seconds: int) -> None:
    harness = CoordinatorHarness(interval_ms=10_000, max_concurrent=10)
    harness.coordinator.start_periodic()
    harness.advance(0)
    harness.clock.jump(seconds)

    harness.advance(30)

    assert harness.triggered_ids == [1, 2, 3, 4]


@JUMPS
def test_the_minimum_pause_is_kept(seconds: int) -> None:
    harness = CoordinatorHarness(interval_ms=10, min_pause_ms=10_000)
    harness.coordinator.start_periodic()
    harness.advance(10)
    harness.acknowledge_all(1)
    harness.clock.jump(seconds)

    harness.advance(9)
    assert harness.triggered_ids == [1]
    harness.advance(1)
    assert harness.triggered_ids == [1, 2]


@JUMPS
def test_a_checkpoint_that_completes_during_the_jump_has_sane_times(seconds: int) -> None:
    harness = CoordinatorHarness()
    harness.complete_one()
    future = harness.coordinator.trigger_checkpoint()
    harness.clock.jump(seconds)
    harness.acknowledge_all(2)

    checkpoint = future.result(timeout=0)
    assert checkpoint.completion_timestamp >= checkpoint.trigger_timestamp
    assert all(s.acknowledged_ms >= checkpoint.trigger_timestamp for o in checkpoint.operators for s in o.subtasks)
    completed = shown(harness, 2)
    assert completed.totals.latest_ack_timestamp >= completed.trigger_timestamp
    assert completed.end_to_end_duration >= 0
    assert harness.stats.snapshot().summary.end_to_end_duration.minimum >= 0
    harness.complete_one()
    assert harness.triggered_ids == [1, 2, 3]
    assert [c.checkpoint_id for c in harness.store.checkpoints] == [3]
