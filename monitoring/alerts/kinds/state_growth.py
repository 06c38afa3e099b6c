"""A rule kind that finds jobs whose state grew too much within a day.

At each full hour, it compares the last completed checkpoint with the last one 24 hours earlier. More frequent
comparisons would show the saw-tooth of compaction and state timeouts, not growth.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Event, Facts
from monitoring.reasons.reason import Reason, ReasonCode

DAY = timedelta(days=1)
# A checkpoint counts for a full hour if it completed less than this long before.
FRESH = timedelta(hours=3)


class StateGrowthReason(ReasonCode):
    RULE = (
        "alerts.state-growth-rule",
        _("Opens when the state grew by {threshold:bytes} or more within 24 hours, checked every hour."),
    )
    NOTHING = "alerts.no-checkpoints-a-day-apart", _("{subject} has no two checkpoints that are a day apart.")
    FOUND = (
        "alerts.state-growth",
        _(
            "The state of {subject} grew by {growth:bytes} within a day, from {older_size:bytes} in checkpoint {older} "
            "to {newer_size:bytes} in {newer} (threshold {threshold:bytes})."
        ),
    )


class StateGrowth(Kind):
    name = "state_growth"
    title = _("Growth of the state per day")
    group = _("State")
    source = Source.HOURLY_SIZE
    unit = Unit.BYTES
    threshold = Number(
        _("Threshold"), Unit.BYTES, 1024**3, 1, 1024**6, _("Growth within 24 hours, such as 500 MB or 1 GB.")
    )
    check_every_s = 300

    def explain(self, terms: Terms) -> Reason:
        return StateGrowthReason.RULE(threshold=terms.threshold or 0)

    def lookback(self, terms: Terms) -> timedelta:
        return DAY + FRESH + timedelta(hours=1)

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return hours(since, until)

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        newer, older = _pair(facts, at)
        return newer.value - older.value if newer and older else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        newer, older = _pair(facts, at)
        if newer is None or older is None:
            return Finding(StateGrowthReason.NOTHING(subject=subject), {"threshold": terms.threshold})
        return Finding(
            StateGrowthReason.FOUND(
                subject=subject,
                growth=newer.value - older.value,
                older_size=older.value,
                older=older.number,
                newer_size=newer.value,
                newer=newer.number,
                threshold=terms.threshold or 0,
            ),
            {
                "growth": newer.value - older.value,
                "threshold": terms.threshold,
                "checkpoint_ids": [older.number, newer.number],
                "rows": [older.row, newer.row],
            },
        )


def hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def hours(since: datetime, until: datetime) -> Iterable[datetime]:
    """Yield the full hours in (since, until]."""
    hour = hour_of(since)
    while (hour := hour + timedelta(hours=1)) <= until:
        yield hour


def _pair(facts: Facts, at: datetime) -> tuple[Event | None, Event | None]:
    hour = hour_of(at)
    return _standing_for(facts, hour), _standing_for(facts, hour - DAY)


def _standing_for(facts: Facts, hour: datetime) -> Event | None:
    last = facts.last(hour)
    return last if last and last.at > hour - FRESH else None


KINDS = (StateGrowth(),)
