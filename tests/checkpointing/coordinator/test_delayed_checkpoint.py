"""What a pending checkpoint waits for, as the tasks report it."""

from __future__ import annotations

from checkpointing.coordinator import stats_json
from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.model.messages import Channel, ChannelKind, DelayCheckpoint
from tests.checkpointing.doubles import JOB_ID, SOURCE, CoordinatorHarness, reason_of

STUCK = "Query 'words' has not come to the end of batch 7; Spark says: Processing new data."


def delay(
    harness: CoordinatorHarness,
    cause: str,
    *,
    checkpoint_id: int = 1,
    job_id: str = JOB_ID,
    silent_ms: int | None = None,
) -> None:
    message = DelayCheckpoint(harness.tasks.session_id, job_id, 1, checkpoint_id, cause, silent_ms)
    harness.coordinator.delay(message)


def newest(harness: CoordinatorHarness) -> dict[str, object]:
    return stats_json.checkpoints(harness.stats.snapshot())["history"][0]


def test_a_pending_checkpoint_shows_what_it_waits_for(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    assert "waiting_for" not in newest(harness)
    delay(harness, STUCK)
    assert newest(harness)["waiting_for"] == STUCK
    delay(harness, "")
    assert "waiting_for" not in newest(harness)


def test_an_expired_checkpoint_names_what_it_waited_for(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    delay(harness, STUCK)
    harness.advance(60)
    assert str(future.exception(timeout=0)) == f"Checkpoint expired before completing. {STUCK}"
    assert newest(harness)["failure_message"] == f"Checkpoint expired before completing. {STUCK}"
    assert "waiting_for" not in newest(harness)


def test_a_checkpoint_waits_for_a_batch_that_computes_and_the_job_does_not_fail(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    for _ in range(10):
        harness.advance(30)
        delay(harness, STUCK, silent_ms=0)
    assert newest(harness)["waiting_for"] == STUCK
    harness.acknowledge_all(1)
    assert reason_of(future) is None
    assert harness.job_failures == []


def test_a_checkpoint_expires_one_timeout_after_the_last_progress_of_its_batch(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.advance(30)
    delay(harness, STUCK, silent_ms=10_000)
    harness.advance(49)
    assert not future.done()
    harness.advance(1)
    assert reason_of(future) is CheckpointFailureReason.CHECKPOINT_EXPIRED


def test_the_state_of_a_long_batch_has_one_timeout_to_be_saved(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.advance(58)
    delay(harness, STUCK, silent_ms=0)
    harness.advance(59)
    delay(harness, STUCK, silent_ms=0)
    delay(harness, "Query 'words' is cut at batch 7; 1 of its subtasks have yet to be saved.")
    harness.advance(59)
    assert not future.done()
    harness.advance(1)
    assert reason_of(future) is CheckpointFailureReason.CHECKPOINT_EXPIRED


def test_an_expired_checkpoint_reports_how_long_its_batch_made_no_progress(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.advance(30)
    delay(harness, STUCK, silent_ms=10_000)
    harness.advance(50)
    expected = f"Checkpoint expired before completing. {STUCK} It has made no progress for 60 s."
    assert str(future.exception(timeout=0)) == expected


def test_the_timeout_doubles_while_batches_make_no_progress_until_a_checkpoint_completes(
    harness: CoordinatorHarness,
) -> None:
    def expires_after(checkpoint_id: int) -> int:
        future = harness.coordinator.trigger_checkpoint()
        delay(harness, STUCK, checkpoint_id=checkpoint_id, silent_ms=0)
        seconds = 0
        while not future.done():
            harness.advance(10)
            seconds += 10
        return seconds

    assert [expires_after(number) for number in range(1, 7)] == [60, 120, 240, 480, 960, 960]
    harness.coordinator.trigger_checkpoint()
    harness.acknowledge_all(7)
    assert expires_after(8) == 60


def test_a_savepoint_does_not_wait_longer_than_its_timeout(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_savepoint(None)
    harness.advance(50)
    delay(harness, STUCK, silent_ms=0)
    harness.advance(10)
    assert reason_of(future) is CheckpointFailureReason.CHECKPOINT_EXPIRED


def test_an_expired_checkpoint_of_silent_tasks_counts_missing_acknowledgements(
    harness: CoordinatorHarness,
) -> None:
    future = harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, SOURCE.id)
    harness.advance(60)
    owing = "2 of 3 subtasks have not acknowledged it."
    assert str(future.exception(timeout=0)) == f"Checkpoint expired before completing. {owing}"


def test_an_expired_checkpoint_names_the_storage_that_it_waited_for(harness: CoordinatorHarness) -> None:
    harness.io.inline = False
    begun = harness.coordinator.trigger_checkpoint()
    harness.io.run_next()  # gets the ID; the directory is not created yet
    harness.advance(60)
    assert "The storage has not made its directory yet." in str(begun.exception(timeout=0))

    harness.io.run_all()
    acknowledged = harness.coordinator.trigger_checkpoint()
    harness.io.run_all()
    harness.acknowledge_all(2)
    harness.advance(60)
    assert "The storage has not written its metadata yet." in str(acknowledged.exception(timeout=0))


def test_messages_for_another_job_or_checkpoint_change_nothing(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    delay(harness, STUCK, job_id="0" * 32)
    delay(harness, STUCK, checkpoint_id=9)
    assert "waiting_for" not in newest(harness)
    harness.acknowledge_all(1)
    assert reason_of(future) is None
    delay(harness, STUCK)
    assert "waiting_for" not in newest(harness)


def test_a_completed_checkpoint_names_the_channels_between_its_queries(harness: CoordinatorHarness) -> None:
    channel = Channel("clean", "count", ChannelKind.FILES, "/mid", 0, '{"logOffset":3}')
    future = harness.coordinator.trigger_checkpoint()
    harness.acknowledge(1, SOURCE.id, channels=(channel,))
    for vertex_id, subtask in harness.subtasks:
        harness.acknowledge(1, vertex_id, subtask)
    assert future.result(timeout=0).channels == (channel,)
