"""Next to a stored problem is a link to the section of docs/errors.md that explains it."""

from __future__ import annotations

from dashboard.templatetags.figures import what_to_do
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why


def shown(reason: Reason | str) -> str:
    value = reason.as_json() if isinstance(reason, Reason) else None
    return what_to_do({"error": str(reason), "error_value": value}, "error")


def test_link_leads_to_the_section_of_the_code() -> None:
    assert shown(Why.START_UNKNOWN()) == '<a href="/documentation/errors/#recovery.start-unknown">What to do</a>'


def test_a_code_that_only_wraps_a_reason_leads_to_the_section_of_that_reason() -> None:
    assert "errors/#recovery.start-unknown" in shown(Why.NOT_RESTARTED(job="orders", why=Why.START_UNKNOWN()))


def test_link_explains_the_outermost_of_several_codes() -> None:
    last = Why.OPERATOR_NOT_RUNNING(name="<b>map</b>")

    link = shown(Why.OUT_OF_TIME(last=Why.WITH_LAST_ANSWER(what=last, answer=last)))

    assert "errors/#recovery.out-of-time" in link
    assert "map" not in link


def test_no_link_for_success_or_a_plain_text() -> None:
    assert shown(Why.STOPPED()) == ""
    assert shown("The restart failed.") == ""
    assert shown("") == ""
