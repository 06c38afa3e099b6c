"""Refusals of `checkpointing` become reasons, whether a form finds them or a job manager returns them."""

from __future__ import annotations

import pytest

from checkpointing.jobs.known_keys import UnknownKey, check_keys
from checkpointing.model.refusals import Refusal
from checkpointing.storage.locations import BadLocation, canonical
from monitoring.reasons.reason import Reason
from monitoring.reasons.refusals import RefusalReason, reason_of, refusal_in

SENT = {"code": "imports.empty", "args": {"location": "/none"}}


def test_each_refusal_is_a_reason_with_its_code_and_text() -> None:
    assert [(each.value, each.text) for each in RefusalReason] == [each.value for each in Refusal]


def test_an_invalid_location_is_refused_with_its_reason() -> None:
    with pytest.raises(BadLocation) as refused:
        canonical("sp/1")
    assert reason_of(refused.value) == RefusalReason.NOT_ABSOLUTE(location="'sp/1'")
    assert str(reason_of(refused.value)) == str(refused.value)


def test_an_unknown_key_has_a_reason() -> None:
    key = "execution.checkpointing.intervall"
    with pytest.raises(UnknownKey) as refused:
        check_keys({key: "1"})
    assert reason_of(refused.value) == RefusalReason.UNKNOWN_KEY_NEAR(key=key, near=key[:-1])
    assert str(reason_of(refused.value)) == str(refused.value)


def test_another_error_has_its_text() -> None:
    assert reason_of(ValueError("it is late")) == "it is late"


def test_a_refusal_of_the_job_manager_is_parsed() -> None:
    assert refusal_in(SENT) == RefusalReason.EMPTY(location="/none")


@pytest.mark.parametrize(
    "sent",
    [
        None,
        {"code": "imports.gone", "args": {}},
        {"code": "recovery.job-is-back", "args": {}},
        {"code": "imports.empty", "args": {"location": ["/none"]}},
        {"code": "imports.empty", "args": {"location": SENT}},
    ],
)
def test_other_texts_are_not_parsed(sent: object) -> None:
    """Other answers are ignored, because they may come from another program."""
    found: Reason | None = refusal_in(sent)
    assert found is None
