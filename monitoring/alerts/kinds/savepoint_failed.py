"""Savepoints that failed since the last good one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import takewhile

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit, savepoints
from monitoring.alerts.rule_facts import Event, Facts
from monitoring.reasons.reason import Reason, ReasonCode

FAILED = 1.0


class SavepointFailedReason(ReasonCode):
    RULE = (
        "alerts.savepoint-failed-rule",
        _("Opens when {savepoints} failed in a row, scheduled or by hand; closes with the next one that completes."),
    )
    FOUND = "alerts.savepoint-failed", _("{savepoints} of {subject} failed (threshold {threshold}).")
    FOUND_CAUSE = (
        "alerts.savepoint-failed-cause",
        _("{savepoints} of {subject} failed (threshold {threshold}): {cause}."),
    )


class SavepointFailed(Kind):
    name = "savepoint_failed"
    title = _("Savepoint failed")
    group = _("Savepoints")
    source = Source.FAILED_SAVEPOINTS
    threshold = Number(_("Threshold"), Unit.COUNT, 1, 1, 1000, _("Failed savepoints in a row that open an incident."))
    counts = True

    def explain(self, terms: Terms) -> Reason:
        return SavepointFailedReason.RULE(savepoints=savepoints(terms.threshold or 0))

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return len(_streak(facts, at))

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        streak = _streak(facts, at)
        cause = streak[0].text.strip().partition("\n")[0][:200].rstrip(".") if streak else ""
        said = {"savepoints": savepoints(len(streak)), "subject": subject, "threshold": terms.threshold}
        return Finding(
            SavepointFailedReason.FOUND_CAUSE(**said, cause=cause) if cause else SavepointFailedReason.FOUND(**said),
            {"count": len(streak), "threshold": terms.threshold, "savepoints": [event.row for event in streak[:20]]},
        )


def _streak(facts: Facts, at: datetime) -> Sequence[Event]:
    return list(takewhile(lambda event: event.value == FAILED, reversed(facts.events[: facts.index(at)])))


KIND = SavepointFailed()
