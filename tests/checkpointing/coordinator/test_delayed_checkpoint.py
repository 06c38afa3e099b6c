"""What a pending checkpoint waits for, in the tasks' own words."""

from __future__ import annotations

from checkpointing.coordinator import stats_json
from checkpointing.messages import Channel, ChannelKind, DelayCheckpoint
from tests.checkpointing.doubles import JOB_ID, SOURCE, CoordinatorHarness, reason_of

STUCK = "Query 'words' has not come to the end of batch 7; Spark says: Processing new data."


def delay(harness: CoordinatorHarness, cause: str, *, checkpoint_id: int = 1, job_id: str = JOB_ID) -> None:
    message = DelayCheckpoint(harness.tasks.session_id, job_id, 1, checkpoint_id, cause)
    harness.coordinator.answers.delay(message)


def newest(harness: CoordinatorHarness) -> dict[str, object]:
    return stats_json.checkpoints(harness.stats.snapshot())["history"][0]


def test_a_pending_checkpoint_shows_what_it_waits_for(harness: CoordinatorHarness) -> None:
    harness.coordinator.trigger_checkpoint()
    assert "waiting_for" not in newest(harness)
    delay(harness, STUCK)
    assert newest(harness)["waiting_for"] == STUCK
    delay(harness, "")
    assert "waiting_for" not in newest(harness)


def test_an_expired_checkpoint_says_what_it_waited_for(harness: CoordinatorHarness) -> None:
    future = harness.coordinator.trigger_checkpoint()
    delay(harness, STUCK)
    harness.advance(60)
    assert str(future.exception(timeout=0)) == f"Checkpoint expired before completing. {STUCK}"
    assert newest(harness)["failure_message"] == f"Checkpoint expired before completing. {STUCK}"
    assert "waiting_for" not in newest(harness)


def test_an_expired_checkpoint_of_silent_tasks_says_how_many_owe_an_acknowledgement(
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
    harness.io.run_next()  # its id; the directory is not made
    harness.advance(60)
    assert "The storage has not made its directory yet." in str(begun.exception(timeout=0))

    harness.io.run_all()
    acknowledged = harness.coordinator.trigger_checkpoint()
    harness.io.run_all()
    harness.acknowledge_all(2)
    harness.advance(60)
    assert "The storage has not written its metadata yet." in str(acknowledged.exception(timeout=0))


def test_words_for_another_job_or_checkpoint_change_nothing(harness: CoordinatorHarness) -> None:
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
