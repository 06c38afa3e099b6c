"""Next to a stored problem stands which of its codes docs/errors.md explains."""

from __future__ import annotations

from dashboard.templatetags.figures import what_to_do
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why


def shown(reason: Reason | str) -> str:
    value = reason.as_json() if isinstance(reason, Reason) else None
    return what_to_do({"error": str(reason), "error_value": value}, "error")


def test_a_code_with_a_section_is_named() -> None:
    assert "<code>recovery.start-unknown</code>" in shown(Why.START_UNKNOWN())


def test_a_code_that_only_wraps_a_reason_is_not_named_but_the_reason_is() -> None:
    wrapped = shown(Why.NOT_RESTARTED(job="orders", why=Why.START_UNKNOWN()))

    assert "recovery.not-restarted" not in wrapped
    assert "<code>recovery.start-unknown</code>" in wrapped


def test_of_several_codes_each_is_named_once_the_outer_one_first() -> None:
    last = Why.OPERATOR_NOT_RUNNING(name="<b>map</b>")

    named = shown(Why.OUT_OF_TIME(last=Why.WITH_LAST_ANSWER(what=last, answer=last)))

    assert "<code>recovery.out-of-time</code>, <code>recovery.operator-not-running</code>" in named
    assert "map" not in named


def test_nothing_is_shown_for_a_step_that_went_well_or_a_text_of_before() -> None:
    assert shown(Why.STOPPED()) == ""
    assert shown("The restart failed.") == ""
    assert shown("") == ""
