"""Checkpoints that failed in a row, none completed in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import checkpoint_failure
from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit, checkpoints
from monitoring.alerts.rule_facts import Event, Facts
from monitoring.reasons.reason import Reason, ReasonCode

FAILED = 1.0  # the value of a failed checkpoint's event; a completed one has 0


class ConsecutiveFailuresReason(ReasonCode):
    RULE = (
        "alerts.consecutive-failures-rule",
        _(
            "Opens when {checkpoints} failed in a row and none completed in between; closes with the next one that "
            "does."
        ),
    )
    NONE = (
        "alerts.no-consecutive-failures",
        _("{checkpoints} of {subject} failed in a row (threshold {threshold})."),
    )
    FOUND = (
        "alerts.consecutive-failures",
        _("{checkpoints} of {subject} failed in a row (threshold {threshold}): the last, {checkpoint}, {failure}."),
    )


class ConsecutiveFailures(Kind):
    name = "consecutive_failures"
    title = _("Checkpoints failing in a row")
    group = _("Checkpoints")
    source = Source.SETTLED
    threshold = Number(_("Threshold"), Unit.COUNT, 3, 1, 10_000, _("Failures in a row that open an incident."))
    counts = True
    reach = timedelta(days=1)

    def explain(self, terms: Terms) -> Reason:
        return ConsecutiveFailuresReason.RULE(checkpoints=checkpoints(terms.threshold or 0))

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return len(_streak(facts, at))

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        streak = _streak(facts, at)
        said = {"checkpoints": checkpoints(len(streak)), "subject": subject, "threshold": terms.threshold}
        if streak:
            said |= {"checkpoint": streak[0].number, "failure": checkpoint_failure(streak[0].text)}
        return Finding(
            ConsecutiveFailuresReason.FOUND(**said) if streak else ConsecutiveFailuresReason.NONE(**said),
            {
                "count": len(streak),
                "threshold": terms.threshold,
                "checkpoint_ids": [event.number for event in streak[:20]],
                "last_row": streak[0].row if streak else None,
            },
        )


def _streak(facts: Facts, at: datetime) -> Sequence[Event]:
    """The newest first."""
    return list(takewhile(lambda event: event.value == FAILED, reversed(facts.events[: facts.index(at)])))


KIND = ConsecutiveFailures()
