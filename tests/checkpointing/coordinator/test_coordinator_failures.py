"""Declined and expired checkpoints, lost drivers, and when these fail the job."""

from __future__ import annotations

import pytest

from checkpointing.coordinator.cleaning import RETRIES_AFTER_S
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.model.messages import SubtaskMetrics
from checkpointing.model.status import JobStatus
from tests.checkpointing.doubles import SOURCE, STATEFUL, CoordinatorHarness, private_file, reason_of, shared_file

Reason = CheckpointFailureReason


def test_conformance_a18_a_decline_aborts_only_the_declined_checkpoint() -> None:
    harness = CoordinatorHarness(max_concurrent=2, tolerable_failures=5)
    first = harness.coordinator.trigger_checkpoint()
    second = harness.coordinator.trigger_checkpoint()

    harness.decline(1, cause="The sink said no.")
    harness.decline(1)

    assert str(first.exception(timeout=0)) == "Checkpoint was declined. The sink said no."
    assert not second.done()
    assert harness.triggered_ids == [1, 2]
    assert len(harness.timer.pending) == 1
    assert [message.checkpoint_id for message in harness.tasks.aborted] == [1]
    assert harness.storage.discarded == ["/checkpoints/chk-1"]


def test_conformance_a10_a_decline_raises_the_error_of_fail_job_and_is_completed(
    harness: CoordinatorHarness,
) -> None:
    harness.fail_job_error = RuntimeError("the job is failing")
    future = harness.coordinator.trigger_checkpoint()

    with pytest.raises(RuntimeError, match="the job is failing"):
        harness.decline(1)

    assert reason_of(future) is Reason.CHECKPOINT_DECLINED
    assert harness.coordinator.pending_ids == ()
    harness.fail_job_error = None
    assert harness.complete_one().checkpoint_id == 2


@pytest.mark.parametrize("reason", [Reason.CHECKPOINT_ASYNC_EXCEPTION, Reason.CHECKPOINT_DECLINED, Reason.IO_EXCEPTION])
def test_conformance_a17_a_counted_decline_beyond_the_tolerance_fails_the_job(
    harness: CoordinatorHarness, reason: CheckpointFailureReason
) -> None:
    harness.coordinator.trigger_checkpoint()
    harness.decline(1, reason)
    ((message, exception),) = harness.job_failures
    assert message.startswith("Exceeded checkpoint tolerable failure threshold.")
    assert exception.reason is reason


def test_an_unknown_reason_of_a_driver_counts_as_a_decline() -> None:
    assert Reason.of_decline("SOMETHING_NEWER") is Reason.CHECKPOINT_DECLINED
    assert Reason.of_decline("CHECKPOINT_DECLINED_TASK_NOT_READY") is Reason.CHECKPOINT_DECLINED_TASK_NOT_READY


def test_conformance_a11_pending_checkpoints_aborted_for_io_count(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    harness.coordinator.abort_pending(Reason.IO_EXCEPTION)
    assert len(harness.job_failures) == 1


def test_conformance_a15_an_expired_checkpoint_beyond_the_tolerance_fails_the_job(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    harness.advance(60)
    assert [exception.reason for _, exception in harness.job_failures] == [Reason.CHECKPOINT_EXPIRED]


def test_conformance_a22_an_expired_checkpoint_is_discarded_and_never_completes() -> None:
    harness = CoordinatorHarness(tolerable_failures=1)
    future = harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, SOURCE.id, 0, files=(private_file(1, "x"),))

    harness.advance(59.9)
    assert not future.done()
    harness.advance(0.2)

    assert reason_of(future) is Reason.CHECKPOINT_EXPIRED
    assert harness.coordinator.pending_ids == ()
    assert harness.storage.directories == set()
    assert harness.tasks.completed == []
    assert harness.acknowledge(1, STATEFUL.id, 0)  # the coordinator still knows the expired checkpoint
    assert harness.acknowledge(1, STATEFUL.id, 1)
    assert harness.store.checkpoints == ()


def test_conformance_a03_a_late_acknowledgement_still_reports_its_figures() -> None:
    harness = CoordinatorHarness(tolerable_failures=1)
    harness.coordinator.trigger_checkpoint()
    harness.decline(1)

    assert not harness.acknowledge(1, STATEFUL.id, 1, metrics=SubtaskMetrics(state_size=42))

    failed = harness.stats.snapshot().latest_failed
    assert failed is not None
    assert (failed.totals.num_acknowledged, failed.totals.state_size) == (1, 42)
    assert failed.failure_message == "Checkpoint was declined."


@pytest.mark.parametrize("reason", [Reason.CHECKPOINT_DECLINED, Reason.CHECKPOINT_ASYNC_EXCEPTION])
def test_a_declined_savepoint_of_a_stop_does_not_fail_the_job(reason: CheckpointFailureReason) -> None:
    harness = CoordinatorHarness(tolerable_failures=0)
    future = harness.coordinator.trigger_synchronous_savepoint(None)

    harness.decline(1, reason, cause="The disk is full.")

    assert harness.job_failures == []
    exception = future.exception(timeout=0)
    assert isinstance(exception, CheckpointException)
    assert (exception.reason, exception.cause) == (reason, "The disk is full.")


def test_an_expired_savepoint_does_not_fail_the_job(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_savepoint(None)
    harness.advance(60)
    assert reason_of(future) is Reason.CHECKPOINT_EXPIRED
    assert harness.job_failures == []
    assert harness.storage.directories == set()


def test_a_lost_driver_aborts_its_pending_checkpoints_and_the_next_starts_without_any() -> None:
    harness = CoordinatorHarness(max_concurrent=3)
    futures = [harness.coordinator.trigger_checkpoint() for _ in range(2)]
    futures.append(harness.coordinator.trigger_savepoint(None))

    harness.coordinator.abort_pending(Reason.TASK_FAILURE, "The driver stopped answering.")

    assert {str(future.exception(timeout=0)) for future in futures} == {
        "Task has failed. The driver stopped answering."
    }
    assert harness.storage.directories == set()
    assert harness.job_failures == []
    assert harness.complete_one().checkpoint_id == 4


def test_stopping_ends_pending_and_queued_requests_as_suspended(harness: CoordinatorHarness) -> None:
    futures = [harness.coordinator.trigger_checkpoint() for _ in range(3)]

    harness.coordinator.stop_periodic()

    assert {reason_of(future) for future in futures} == {Reason.CHECKPOINT_COORDINATOR_SUSPEND}
    assert harness.triggered_ids == [1]
    assert harness.job_failures == []


def test_a_directory_that_cannot_be_removed_stops_nothing(harness: CoordinatorHarness) -> None:
    harness.storage.discard_error = OSError("busy")
    for expected in (1, 2, 3):
        assert harness.complete_one().checkpoint_id == expected


def test_a_failed_removal_of_shared_files_stops_nothing_and_is_retried(harness: CoordinatorHarness) -> None:
    harness.storage.discard_shared_error = OSError("busy")
    for name in ("a", "b", "c", "d"):
        harness.complete_one((shared_file(name),))
    assert harness.storage.shared == {"shared/a", "shared/b", "shared/c", "shared/d"}

    harness.storage.discard_shared_error = None
    harness.advance(RETRIES_AFTER_S[0])
    assert harness.storage.shared == {"shared/d"}


def test_a_failed_removal_of_shared_files_is_retried_after_a_pause(harness: CoordinatorHarness) -> None:
    harness.complete_one((shared_file("a"),))
    harness.storage.discard_shared_error = OSError("read-only file system")
    harness.complete_one((shared_file("b"),))
    tries = harness.storage.num_shared_tries

    harness.advance(sum(RETRIES_AFTER_S))

    assert harness.storage.num_shared_tries == tries + len(RETRIES_AFTER_S)


def test_the_removal_of_a_directory_is_retried_at_growing_intervals(harness: CoordinatorHarness) -> None:
    harness.storage.discard_error = OSError("busy")
    first = harness.complete_one()
    harness.complete_one()
    assert first.location in harness.storage.directories

    harness.advance(RETRIES_AFTER_S[0])
    assert first.location in harness.storage.directories
    harness.storage.discard_error = None
    harness.advance(RETRIES_AFTER_S[1])

    assert first.location not in harness.storage.directories
    assert harness.timer.pending == []


def test_a_directory_that_cannot_be_removed_is_reported_once_and_retried_at_the_end(
    harness: CoordinatorHarness,
) -> None:
    harness.storage.discard_error = OSError("busy")
    first = harness.complete_one()
    harness.complete_one()

    harness.advance(sum(RETRIES_AFTER_S) + 1)

    assert harness.left_behind == [(f"The checkpoint directory {first.location}", "busy")]
    assert harness.timer.pending == []
    harness.storage.discard_error = None
    assert harness.shut_down(JobStatus.FINISHED) == [None]
    assert harness.storage.directories == set()


def test_failed_removal_at_shutdown_is_reported(harness: CoordinatorHarness) -> None:
    harness.storage.discard_error = OSError("busy")
    first = harness.complete_one()
    second = harness.complete_one()

    assert harness.shut_down(JobStatus.FINISHED) == [None]

    left = {what for what, _ in harness.left_behind}
    assert left == {f"The checkpoint directory {checkpoint.location}" for checkpoint in (first, second)}
    assert harness.timer.pending == []


def test_every_message_begins_with_its_reason() -> None:
    for reason in Reason:
        assert str(CheckpointException(reason, "Why.")).startswith(reason.message)
    texts = [reason.message for reason in Reason]
    assert len(set(texts)) == len(texts)


def test_only_flinks_five_reasons_count() -> None:
    assert {reason.name for reason in Reason if reason.counts} == {
        "IO_EXCEPTION",
        "CHECKPOINT_ASYNC_EXCEPTION",
        "CHECKPOINT_DECLINED",
        "CHECKPOINT_EXPIRED",
        "FINALIZE_CHECKPOINT_FAILURE",
    }
