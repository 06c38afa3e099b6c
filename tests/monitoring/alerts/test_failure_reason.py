import pytest

from monitoring.alerts.failure_reason import (
    PREFIXES,
    CheckpointFailureReason,
    UnlistedFailure,
    checkpoint_failure,
    reason_of,
)


@pytest.mark.parametrize("reason", CheckpointFailureReason)
def test_every_reason_is_parsed_from_its_message(reason):
    assert reason_of(f"{PREFIXES[reason]}. And a cause that the engine added.") is reason


def test_declined_for_a_named_cause_is_still_declined():
    assert checkpoint_failure("Checkpoint was declined (tasks not ready)") == CheckpointFailureReason.DECLINED()


def test_an_unknown_message_is_shown_unchanged_on_one_line():
    found = checkpoint_failure("Disk is full.\n\tat Storage.write")
    assert found == UnlistedFailure.WITH_MESSAGE(message="Disk is full")


def test_an_empty_message_has_the_reason_for_no_message():
    assert checkpoint_failure("") == UnlistedFailure.WITHOUT_MESSAGE()
