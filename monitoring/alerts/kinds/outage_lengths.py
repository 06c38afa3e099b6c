"""Kinds that look at how long nothing was learned of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Kind, Terms, Unit
from monitoring.alerts.rule_facts import Facts, Interval

_INSTANT = timedelta(microseconds=1)


class OutageLength(Kind):
    """Value: seconds since the outage began; 0 without one."""

    group = _("Watching")
    unit = Unit.SECONDS
    check_every_s = 30

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        for outage in facts.outages:
            yield outage.began
            yield outage.began + timedelta(seconds=terms.threshold or 0)
            if outage.ended is not None:
                yield outage.ended - _INSTANT  # how long it became
                yield outage.ended

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        outage = current(facts, at)
        return (at - outage.began).total_seconds() if outage else 0


def current(facts: Facts, at: datetime) -> Interval | None:
    """The longest one, where several last at once."""
    return min((outage for outage in facts.outages if outage.covers(at)), default=None, key=lambda each: each.began)
