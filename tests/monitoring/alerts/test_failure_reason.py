import pytest

from monitoring.alerts.failure_reason import CheckpointFailureReason, failure_in_words, reason_of


@pytest.mark.parametrize("reason", CheckpointFailureReason)
def test_every_reason_is_read_back_from_its_own_message(reason):
    assert reason_of(f"{reason.prefix}. And a cause that the engine added.") is reason


def test_declined_for_a_named_cause_is_still_declined():
    assert failure_in_words("Checkpoint was declined (tasks not ready)") == "was declined"


def test_an_unknown_message_is_shown_as_it_came_on_one_line():
    assert failure_in_words("Disk is full.\n\tat Storage.write") == "failed: Disk is full"


def test_no_message_is_said_to_be_none():
    assert failure_in_words("") == "failed for a reason the engine did not give"
