"""How checkpoints complete, and the effects of a completion."""

from __future__ import annotations

import pytest

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.coordinator.stats_model import CheckpointStatsStatus
from checkpointing.model.messages import SubtaskMetrics
from checkpointing.model.status import JobStatus
from tests.checkpointing.doubles import (
    SOURCE,
    STATEFUL,
    CoordinatorHarness,
    private_file,
    reason_of,
    shared_file,
)

Reason = CheckpointFailureReason


def test_conformance_a19_acknowledge_by_acknowledge_to_a_retained_checkpoint(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    assert harness.coordinator.pending_ids == (1,)

    assert harness.acknowledge(1, SOURCE.id, 0)
    assert harness.acknowledge(1, STATEFUL.id, 0, files=(private_file(1, "x"),))
    assert harness.acknowledge(1, STATEFUL.id, 0)  # a repeated acknowledgement changes nothing
    assert not future.done()
    harness.advance(3)
    assert harness.acknowledge(1, STATEFUL.id, 1)

    checkpoint = future.result(timeout=0)
    assert harness.coordinator.pending_ids == ()
    assert harness.coordinator.latest_completed == checkpoint
    assert harness.storage.metadata == {"/checkpoints/chk-1": checkpoint}
    assert harness.timer.pending == []
    (complete,) = harness.tasks.completed
    assert (complete.checkpoint_id, complete.last_subsumed, complete.session_id) == (1, None, "session-1")
    assert checkpoint.completion_timestamp == checkpoint.trigger_timestamp + 3000
    assert checkpoint.batches == {"q": 7}
    assert [len(operator.subtasks) for operator in checkpoint.operators] == [1, 2]
    assert checkpoint.files == (private_file(1, "x"),)

    harness.complete_one()
    assert [kept.checkpoint_id for kept in harness.store.checkpoints] == [2]
    assert harness.storage.discarded == ["/checkpoints/chk-1"]
    assert harness.tasks.completed[-1].last_subsumed == 1


def test_conformance_a21_a_completed_checkpoint_subsumes_an_older_pending_one() -> None:
    harness = CoordinatorHarness(max_concurrent=2)
    first = harness.coordinator.trigger_checkpoint()
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, SOURCE.id, 0, files=(private_file(1, "x"),))

    harness.acknowledge_all(2, (private_file(2, "y"),))

    assert reason_of(first) is Reason.CHECKPOINT_SUBSUMED
    assert harness.storage.directories == {"/checkpoints/chk-2"}
    assert [(message.checkpoint_id, message.reason) for message in harness.tasks.aborted] == [
        (1, "CHECKPOINT_SUBSUMED")
    ]
    harness.storage.directories.add("/checkpoints/chk-1")  # the driver was still writing
    assert not harness.acknowledge(1, STATEFUL.id, 0, files=(private_file(1, "z"),))
    assert harness.storage.directories == {"/checkpoints/chk-2"}

    assert harness.shut_down(JobStatus.FINISHED) == [None]
    assert harness.storage.directories == set()


def test_two_concurrent_checkpoints_both_complete() -> None:
    harness = CoordinatorHarness(max_concurrent=2, num_retained=2)
    futures = [harness.coordinator.trigger_checkpoint() for _ in range(2)]
    harness.acknowledge_all(1)
    harness.acknowledge_all(2)
    assert [future.result(timeout=0).checkpoint_id for future in futures] == [1, 2]
    assert [kept.checkpoint_id for kept in harness.store.checkpoints] == [1, 2]


def test_checkpoints_enter_the_store_one_at_a_time_and_in_the_order_of_their_ids() -> None:
    harness = CoordinatorHarness(max_concurrent=3, num_retained=3)
    futures = [harness.coordinator.trigger_checkpoint() for _ in range(3)]
    harness.io.inline = False
    for checkpoint_id in (1, 2, 3):
        harness.acknowledge_all(checkpoint_id)
    for index in (0, 1, 0):  # writes the metadata of 1, 3 and 2; the store takes one add at a time
        harness.io.run_next(index)
    assert harness.io.num_queued == 1

    harness.io.run_all()

    assert [kept.checkpoint_id for kept in harness.store.checkpoints] == [1, 2, 3]
    assert all(future.done() for future in futures)


def test_conformance_a29_a_savepoint_is_not_retained_and_notifies_no_task(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    future = harness.coordinator.trigger_savepoint(None)

    harness.acknowledge_all(2)

    savepoint = future.result(timeout=0)
    assert savepoint.location in harness.storage.metadata
    assert harness.store.checkpoints == ()
    assert harness.coordinator.latest_completed is None
    assert harness.tasks.completed == []
    assert harness.coordinator.pending_ids == (1,)  # it subsumed no checkpoint
    snapshot = harness.stats.snapshot()
    assert snapshot.latest_savepoint is not None
    assert snapshot.latest_savepoint.status is CheckpointStatsStatus.COMPLETED
    assert snapshot.latest_completed is None


def test_a_savepoint_survives_everything_that_follows(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_savepoint(None)
    harness.acknowledge_all(1)
    harness.complete_one()
    harness.complete_one()
    assert harness.shut_down(JobStatus.FINISHED) == [None]
    assert harness.storage.directories == {future.result(timeout=0).location}


def test_a_synchronous_savepoint_notifies_the_tasks_before_its_future_is_done(harness: CoordinatorHarness) -> None:
    checkpoint = harness.coordinator.trigger_checkpoint()
    future = harness.coordinator.trigger_synchronous_savepoint(None)
    result: list[int] = []
    future.add_done_callback(lambda _: result.extend(message.checkpoint_id for message in harness.tasks.completed))

    harness.acknowledge_all(2)

    assert result == [2]
    assert reason_of(checkpoint) is Reason.CHECKPOINT_SUBSUMED


def test_conformance_a54_the_statistics_have_it_before_the_future_is_done(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    seen: list[tuple[int, tuple[int, ...]]] = []
    future.add_done_callback(
        lambda _: seen.append((harness.stats.snapshot().counts.completed, harness.coordinator.pending_ids))
    )
    harness.acknowledge_all(1)
    assert seen == [(1, ())]


def test_conformance_a05_a_queued_request_starts_after_the_completion_not_within_it(
    harness: CoordinatorHarness,
) -> None:
    harness.coordinator.trigger_checkpoint()
    second = harness.coordinator.trigger_checkpoint()
    harness.io.inline = False

    harness.acknowledge_all(1)
    assert harness.triggered_ids == [1]
    harness.io.run_all()

    assert harness.triggered_ids == [1, 2]
    assert not second.done()


def test_conformance_a23_messages_for_unknown_checkpoints_are_ignored(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()

    assert not harness.acknowledge(1, job_id="f" * 32)
    assert not harness.acknowledge(99)
    assert harness.acknowledge(1, "c" * 32)
    assert harness.acknowledge(1, SOURCE.id, 5)
    harness.decline(99)

    assert harness.coordinator.pending_ids == (1,)
    with pytest.raises(ValueError, match="f" * 32):
        harness.decline(1, job_id="f" * 32)


def test_subtasks_at_different_batches_never_make_a_checkpoint(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, SOURCE.id, 0, batch=7)

    harness.acknowledge(1, STATEFUL.id, 0, batch=8)

    assert reason_of(future) is Reason.CHECKPOINT_DECLINED
    assert "batch 7 and at batch 8" in str(future.exception(timeout=0))


def test_conformance_a47_metadata_that_cannot_be_written_fails_the_checkpoint(harness: CoordinatorHarness) -> None:
    harness.storage.write_error = OSError("disk full")
    future = harness.coordinator.trigger_checkpoint()

    harness.acknowledge_all(1)

    assert reason_of(future) is Reason.FINALIZE_CHECKPOINT_FAILURE
    assert "disk full" in str(future.exception(timeout=0))
    assert harness.store.checkpoints == ()
    assert harness.storage.directories == set()
    assert [message.reason for message in harness.tasks.aborted] == ["FINALIZE_CHECKPOINT_FAILURE"]
    assert harness.timer.pending == []
    assert len(harness.job_failures) == 1


def test_conformance_c02_a_failed_add_removes_the_files_and_keeps_the_older(harness: CoordinatorHarness) -> None:
    first = harness.complete_one((shared_file("s"),))
    harness.store.add_error = RuntimeError("no quorum")
    future = harness.coordinator.trigger_checkpoint()

    harness.acknowledge_all(2, (shared_file("s"), shared_file("t")))

    assert reason_of(future) is Reason.FINALIZE_CHECKPOINT_FAILURE
    assert harness.storage.directories == {first.location}
    assert harness.storage.shared == {"shared/s"}
    assert harness.coordinator.latest_completed == first


def test_conformance_c03_files_are_kept_if_the_store_may_have_added_the_checkpoint(harness: CoordinatorHarness) -> None:
    harness.store.add_error = PossibleInconsistentState("connection lost")
    future = harness.coordinator.trigger_checkpoint()

    harness.acknowledge_all(1, (shared_file("s"),))
    harness.acknowledge(1, STATEFUL.id, 1, files=(private_file(1, "x"),))  # a late duplicate

    assert reason_of(future) is Reason.FINALIZE_CHECKPOINT_FAILURE
    assert harness.storage.directories == {"/checkpoints/chk-1"}
    assert harness.storage.shared == {"shared/s"}
    assert harness.storage.discarded == []
    snapshot = harness.stats.snapshot()
    assert (snapshot.counts.failed, snapshot.counts.completed) == (1, 0)


def test_a_duplicate_of_a_completed_checkpoint_removes_nothing(harness: CoordinatorHarness) -> None:
    harness.complete_one((shared_file("s"), private_file(1, "x")))
    assert not harness.acknowledge(1, SOURCE.id, 0, files=(shared_file("s"), private_file(1, "x")))
    assert harness.storage.shared == {"shared/s"}
    assert harness.storage.directories == {"/checkpoints/chk-1"}


def test_a_checkpoint_aborted_during_the_metadata_write_loses_its_files_after_it(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.io.inline = False
    harness.acknowledge_all(1)

    harness.coordinator.abort_pending(Reason.TASK_FAILURE, "The driver is gone.")
    assert reason_of(future) is Reason.TASK_FAILURE
    assert harness.io.num_queued == 1  # the write of the metadata, but no discard
    harness.io.run_all()

    assert harness.storage.directories == set()
    assert harness.store.checkpoints == ()


def test_a_failed_metadata_write_of_an_aborted_checkpoint_removes_files_without_a_failure(
    harness: CoordinatorHarness,
) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.io.inline = False
    harness.storage.write_error = OSError("away")
    harness.acknowledge_all(1)

    harness.coordinator.abort_pending(Reason.TASK_FAILURE, "The driver is gone.")
    harness.io.run_all()

    assert reason_of(future) is Reason.TASK_FAILURE
    assert harness.storage.directories == set()
    assert harness.job_failures == []


def test_a_checkpoint_aborted_while_the_store_adds_an_older_one_is_not_added() -> None:
    harness = CoordinatorHarness(max_concurrent=2, num_retained=2)
    older, newer = (harness.coordinator.trigger_checkpoint() for _ in range(2))
    harness.io.inline = False
    for checkpoint_id in (1, 2):
        harness.acknowledge_all(checkpoint_id)
    for _ in range(2):  # writes the metadata of both; the store has not added the older one yet
        harness.io.run_next()

    harness.coordinator.abort_pending(Reason.TASK_FAILURE, "The driver is gone.")
    harness.io.run_all()

    assert (older.result(timeout=0).checkpoint_id, reason_of(newer)) == (1, Reason.TASK_FAILURE)
    assert [kept.checkpoint_id for kept in harness.store.checkpoints] == [1]
    assert harness.storage.directories == {"/checkpoints/chk-1"}


def test_a_checkpoint_being_added_to_the_store_cannot_be_aborted_and_delays_a_restart(
    harness: CoordinatorHarness,
) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.io.inline = False
    harness.acknowledge_all(1)
    harness.io.run_next()  # writes the metadata; the store has not answered yet
    settled: list[int | None] = []

    harness.coordinator.abort_pending(Reason.TASK_FAILURE)
    harness.advance(100)
    harness.coordinator.settled().add_done_callback(
        lambda _: settled.append(latest.checkpoint_id if (latest := harness.coordinator.latest_completed) else None)
    )
    assert (settled, future.done()) == ([], False)
    harness.io.run_all()

    assert future.result(timeout=0).checkpoint_id == 1
    assert settled == [1]


def test_the_coordinator_is_settled_at_once_if_no_checkpoint_is_being_written(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    assert harness.coordinator.settled().done()


def test_the_figures_of_a_checkpoint_are_the_sums_of_its_subtasks(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    for number, (vertex_id, subtask) in enumerate(harness.subtasks, start=1):
        harness.advance(1)
        harness.acknowledge(1, vertex_id, subtask, metrics=SubtaskMetrics(checkpointed_size=number, state_size=10))
    completed = harness.stats.snapshot().latest_completed
    assert completed is not None
    assert (completed.totals.checkpointed_size, completed.totals.state_size) == (6, 30)
    assert (completed.end_to_end_duration, completed.num_subtasks) == (3000, 3)
