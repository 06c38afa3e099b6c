"""When checkpoints start: requests, the periodic timer, ids, locations (Flink's A and B lists)."""

from __future__ import annotations

import pytest

from checkpointing.coordinator.ports import CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.model.checkpoint import RetentionPolicy
from checkpointing.model.messages import CheckpointKind
from tests.checkpointing.doubles import JOB_ID, SAVEPOINTS, STATEFUL, VERTICES, CoordinatorHarness, reason_of

Reason = CheckpointFailureReason


def periodic(**changes: object) -> CoordinatorHarness:
    harness = CoordinatorHarness(**{"interval_ms": 10_000, **changes})
    harness.coordinator.start_periodic()
    return harness


def test_the_trigger_has_the_directory_and_the_kind_of_snapshot(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint(full=True)

    (message,) = harness.tasks.triggered
    assert (message.checkpoint_id, message.kind, message.full) == (1, CheckpointKind.CHECKPOINT, True)
    assert (message.directory, message.shared_directory) == ("/checkpoints/chk-1", "/checkpoints/shared")
    assert (message.session_id, message.timeout_ms) == ("session-1", 60_000)
    assert message.trigger_timestamp == harness.clock.now_ms()


def test_a_savepoint_is_stored_in_the_target_or_the_configured_directory(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_savepoint("/elsewhere")
    harness.coordinator.trigger_savepoint(None)
    harness.coordinator.trigger_synchronous_savepoint(None)

    first, second, third = harness.tasks.triggered
    assert first.directory.startswith("/elsewhere/")
    assert second.directory.startswith(f"{SAVEPOINTS}/")
    assert (first.kind, first.shared_directory) == (CheckpointKind.SAVEPOINT, None)
    assert third.kind is CheckpointKind.SYNC_SAVEPOINT


def test_a_savepoint_without_any_directory_fails_and_names_the_missing_setting() -> None:
    harness = CoordinatorHarness(savepoint_directory=None)

    future = harness.coordinator.trigger_savepoint(None)

    assert reason_of(future) is Reason.TRIGGER_CHECKPOINT_FAILURE
    assert "execution.checkpointing.savepoint-dir" in str(future.exception(timeout=0))
    assert harness.counter.value == 1


def test_conformance_a06_no_checkpoint_while_tasks_do_not_run(harness: CoordinatorHarness) -> None:
    harness.tasks_run(False)

    future = harness.coordinator.trigger_checkpoint()

    assert reason_of(future) is Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
    assert "The driver is starting." in str(future.exception(timeout=0))
    assert harness.coordinator.pending_ids == ()
    assert harness.store.checkpoints == ()
    counts = harness.stats.snapshot().counts
    assert (counts.total, counts.failed, harness.stats.snapshot().latest_failed) == (1, 1, None)


@pytest.mark.parametrize(
    "plan",
    [CheckpointPlan(VERTICES, ready=False, reason="count finished"), CheckpointPlan((STATEFUL,), ready=True)],
    ids=["a task finished", "other tasks"],
)
def test_conformance_a09_tasks_that_change_during_triggering_abort_it(plan: CheckpointPlan) -> None:
    harness = CoordinatorHarness(inline_io=False)
    future = harness.coordinator.trigger_checkpoint()
    harness.plan = plan

    harness.io.run_all()

    assert reason_of(future) is Reason.NOT_ALL_REQUIRED_TASKS_RUNNING
    assert harness.tasks.triggered == []
    assert [message.checkpoint_id for message in harness.tasks.aborted] == [1]
    assert harness.storage.directories == set()


def test_conformance_a13_an_unreachable_storage_counts_and_shows_in_the_statistics(harness: CoordinatorHarness) -> None:
    harness.storage.initialize_error = PermissionError("read-only file system")

    future = harness.coordinator.trigger_checkpoint()

    assert reason_of(future) is Reason.IO_EXCEPTION
    assert "read-only file system" in str(future.exception(timeout=0))
    assert len(harness.job_failures) == 1
    (entry,) = harness.stats.snapshot().history
    assert entry.checkpoint_id == 1
    assert harness.coordinator.pending_ids == ()


def test_conformance_a25_to_a27_no_more_than_the_allowed_number_at_once() -> None:
    for allowed in (1, 2, 5):
        harness = periodic(max_concurrent=allowed, timeout_ms=10_000_000)
        harness.advance(200)
        assert len(harness.coordinator.pending_ids) == allowed

        harness.acknowledge_all(harness.coordinator.pending_ids[0])
        assert harness.triggered_ids == list(range(1, allowed + 2))


def test_conformance_a28_subsumption_frees_slots() -> None:
    harness = periodic(max_concurrent=2, timeout_ms=10_000_000)
    harness.advance(100)
    assert harness.coordinator.pending_ids == (1, 2)

    harness.acknowledge_all(2)
    harness.advance(10)
    assert harness.coordinator.pending_ids == (3, 4)


def test_conformance_a31_the_timer_keeps_trying_until_the_tasks_run() -> None:
    harness = periodic()
    harness.tasks_run(False)
    harness.advance(30)
    assert harness.triggered_ids == []

    harness.tasks_run(True)
    harness.advance(10)
    assert harness.triggered_ids == [1]


def test_conformance_a32_the_limit_does_not_delay_savepoints(harness: CoordinatorHarness) -> None:
    futures = [harness.coordinator.trigger_savepoint(None) for _ in range(5)]
    assert len(harness.coordinator.pending_ids) == 5

    for checkpoint_id in harness.coordinator.pending_ids:
        harness.acknowledge_all(checkpoint_id)
    assert all(future.result(timeout=0).properties.is_savepoint for future in futures)


def test_conformance_a33_the_minimum_pause_does_not_delay_savepoints() -> None:
    harness = CoordinatorHarness(min_pause_ms=100_000_000)
    harness.complete_one()

    harness.coordinator.trigger_savepoint(None)
    harness.coordinator.trigger_savepoint(None)

    assert len(harness.coordinator.pending_ids) == 2


def test_conformance_a35_a_checkpoint_follows_the_configured_retention(harness: CoordinatorHarness) -> None:
    for policy in RetentionPolicy:
        other = CoordinatorHarness(retention=policy)
        assert other.complete_one().properties.retention is policy


def test_conformance_a38_one_statistics_entry_per_trigger(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    assert [entry.checkpoint_id for entry in harness.stats.snapshot().history] == [1]


def test_conformance_a42_stopping_while_the_id_is_allocated_refuses_the_periodic_checkpoint() -> None:
    harness = CoordinatorHarness(interval_ms=10_000, inline_io=False)
    harness.coordinator.start_periodic()
    harness.advance(0)
    assert harness.io.num_queued == 1

    harness.coordinator.stop_periodic()
    harness.io.run_all()

    assert harness.triggered_ids == []
    assert harness.stats.snapshot().counts.failed == 1


def test_conformance_a43_a_broken_id_counter_counts_without_a_statistics_entry(harness: CoordinatorHarness) -> None:
    harness.counter.error = OSError("no quorum")

    future = harness.coordinator.trigger_checkpoint()

    assert reason_of(future) is Reason.IO_EXCEPTION
    assert len(harness.job_failures) == 1
    counts = harness.stats.snapshot().counts
    assert (counts.total, counts.failed, counts.in_progress) == (1, 1, 0)
    assert harness.stats.snapshot().history == ()


def test_conformance_b01_periodic_ids_ascend_and_resume_after_a_stop() -> None:
    harness = periodic()
    for _ in range(3):
        harness.advance(10)
        harness.acknowledge_all(harness.triggered_ids[-1])
    before = len(harness.triggered_ids)
    assert before >= 3

    harness.coordinator.stop_periodic()
    harness.advance(100)
    assert len(harness.triggered_ids) == before

    harness.coordinator.start_periodic()
    harness.advance(10)
    harness.acknowledge_all(harness.triggered_ids[-1])
    harness.advance(10)
    assert harness.triggered_ids == sorted(set(harness.triggered_ids))
    assert len(harness.triggered_ids) >= before + 2
    stamps = [message.trigger_timestamp for message in harness.tasks.triggered]
    assert stamps == sorted(stamps)


def test_the_cadence_is_fixed_and_a_late_thread_does_not_catch_up() -> None:
    harness = periodic(interval_ms=10_000)
    harness.advance(0)
    harness.acknowledge_all(1)
    harness.clock.advance(35)  # the thread was busy
    harness.advance(0)
    harness.acknowledge_all(2)
    assert harness.triggered_ids == [1, 2]

    harness.advance(5)
    assert harness.triggered_ids == [1, 2, 3]


def test_conformance_b03_checkpoints_are_full_after_a_savepoint_until_one_completes() -> None:
    harness = CoordinatorHarness()
    savepoint_source = CoordinatorHarness()
    future = savepoint_source.coordinator.trigger_savepoint(None)
    savepoint_source.acknowledge_all(1)
    harness.coordinator.restored(future.result(timeout=0), is_savepoint=True)

    harness.coordinator.trigger_savepoint(None)
    harness.acknowledge_all(harness.triggered_ids[-1])
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge_all(harness.triggered_ids[-1])
    harness.coordinator.trigger_checkpoint()

    assert [(message.kind, message.full) for message in harness.tasks.triggered] == [
        (CheckpointKind.SAVEPOINT, False),
        (CheckpointKind.CHECKPOINT, True),
        (CheckpointKind.CHECKPOINT, False),
    ]


def test_conformance_b08_the_pause_counts_from_the_last_completion_on_the_monotonic_clock() -> None:
    harness = periodic(interval_ms=1_000, min_pause_ms=10_000)
    harness.advance(11)
    assert harness.triggered_ids == [1]
    harness.advance(7)
    harness.acknowledge_all(1)
    harness.clock.jump(3600)  # a corrected wall clock must not shorten the pause

    harness.advance(9.9)
    assert harness.triggered_ids == [1]
    harness.advance(0.2)
    assert harness.triggered_ids == [1, 2]


def test_conformance_b09_a_manual_request_is_accepted_after_the_periodic_ones_stopped() -> None:
    harness = periodic()
    harness.coordinator.stop_periodic()

    periodic_future = harness.coordinator.trigger_savepoint(None, is_periodic=True)
    manual_future = harness.coordinator.trigger_checkpoint()

    assert reason_of(periodic_future) is Reason.PERIODIC_SCHEDULER_SHUTDOWN
    harness.acknowledge_all(harness.triggered_ids[-1])
    assert manual_future.done()


def test_conformance_b12_a_request_during_triggering_is_queued() -> None:
    harness = CoordinatorHarness(inline_io=False, max_concurrent=2)
    harness.coordinator.trigger_checkpoint()
    harness.coordinator.trigger_checkpoint()
    assert harness.io.num_queued == 1

    harness.io.run_all()

    assert harness.triggered_ids == [1, 2]


def test_conformance_b13_a_failed_id_allocation_does_not_block_the_queue() -> None:
    harness = CoordinatorHarness(inline_io=False, max_concurrent=3)
    harness.counter.error = OSError("no quorum")
    futures = [harness.coordinator.trigger_checkpoint() for _ in range(3)]
    harness.io.run_next()
    harness.counter.error = None

    harness.io.run_all()

    assert reason_of(futures[0]) is Reason.IO_EXCEPTION
    assert harness.triggered_ids == [1, 2]


def test_a_long_queue_of_failing_requests_fails_without_recursion() -> None:
    harness = CoordinatorHarness(inline_io=False, tolerable_failures=2**31 - 1)
    futures = [harness.coordinator.trigger_checkpoint() for _ in range(1000)]
    harness.tasks_run(False)

    harness.io.run_all()

    assert {reason_of(future) for future in futures} == {Reason.NOT_ALL_REQUIRED_TASKS_RUNNING}


def test_conformance_b15_another_error_of_the_counter_is_a_trigger_failure(harness: CoordinatorHarness) -> None:
    harness.counter.error = RuntimeError("not connected")
    future = harness.coordinator.trigger_checkpoint()
    assert reason_of(future) is Reason.TRIGGER_CHECKPOINT_FAILURE
    assert harness.job_failures == []

    harness.counter.error = None
    assert harness.complete_one().checkpoint_id == 1


def test_conformance_b17_the_next_request_starts_if_the_triggered_one_is_aborted() -> None:
    harness = CoordinatorHarness(inline_io=False)
    first = harness.coordinator.trigger_checkpoint()
    harness.io.run_next()  # gets the ID, but no location while the storage hangs
    second = harness.coordinator.trigger_checkpoint()

    harness.advance(60)
    assert reason_of(first) is Reason.CHECKPOINT_EXPIRED
    assert not second.done()
    harness.io.run_all()

    assert harness.triggered_ids == [2]
    assert harness.storage.discarded == ["/checkpoints/chk-1"]
    assert harness.storage.directories == {"/checkpoints/chk-2"}


def test_no_interval_no_periodic_checkpoint(harness: CoordinatorHarness) -> None:
    harness.coordinator.start_periodic()
    harness.advance(1_000_000)
    assert harness.triggered_ids == []
    assert harness.timer.pending == []


def test_the_first_delay_is_drawn_between_pause_and_interval() -> None:
    drawn: list[tuple[int, int]] = []

    def draw(low: int, high: int) -> int:
        drawn.append((low, high))
        return high

    harness = CoordinatorHarness(interval_ms=10_000, min_pause_ms=2_000, initial_delay_ms=draw)

    harness.coordinator.start_periodic()
    harness.advance(9.9)
    assert (drawn, harness.triggered_ids) == ([(2_000, 10_000)], [])
    harness.advance(0.2)
    assert harness.triggered_ids == [1]


def test_a_future_cannot_be_cancelled_by_its_holder(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    assert not future.cancel()
    harness.acknowledge_all(1)
    assert future.result(timeout=0).job_id == JOB_ID
