"""Savepoints that failed since the last good one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import takewhile

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit, plural
from monitoring.alerts.rule_facts import Event, Facts

FAILED = 1.0


class SavepointFailed(Kind):
    name = "savepoint_failed"
    title = _("Savepoint failed")
    group = _("Savepoints")
    source = Source.FAILED_SAVEPOINTS
    threshold = Number(_("Threshold"), Unit.COUNT, 1, 1, 1000, _("Failed savepoints in a row that open an incident."))
    counts = True

    def explain(self, terms: Terms) -> str:
        failed = plural(terms.threshold or 0, "savepoint")
        return f"Opens when {failed} failed in a row, scheduled or by hand; closes with the next one that completes."

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return len(_streak(facts, at))

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        streak = _streak(facts, at)
        why = streak[0].text.strip().partition("\n")[0][:200].rstrip(".") if streak else ""
        tail = f": {why}" if why else ""
        return Finding(
            f"{plural(len(streak), 'savepoint')} of {subject} failed (threshold {terms.threshold}){tail}.",
            {"count": len(streak), "threshold": terms.threshold, "savepoints": [event.row for event in streak[:20]]},
        )


def _streak(facts: Facts, at: datetime) -> Sequence[Event]:
    return list(takewhile(lambda event: event.value == FAILED, reversed(facts.events[: facts.index(at)])))


KIND = SavepointFailed()
