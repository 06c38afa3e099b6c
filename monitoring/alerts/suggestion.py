"""Suggest a threshold from the job's history: the lowest that would have opened fewer than k incidents a week."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from monitoring.alerts.backtest import Watched, walk_through
from monitoring.alerts.kinds.base import Number, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.alerts.standing import facts_over
from monitoring.alerts.walk import Move, Watch

WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Suggestion:
    """A suggested threshold. `incidents`: how many incidents it would have opened in the examined history."""

    threshold: int
    incidents: int


def suggest(watch: Watch, subject: Watched, since: datetime, until: datetime, per_week: int) -> Suggestion | None:
    """Return None if the kind has no threshold, the history has no values, or no threshold is quiet enough.

    A higher threshold may open more incidents, because one long incident may become two. So not every threshold above
    the suggested one is quieter. `incidents` is counted with the suggested threshold itself.
    """
    if watch.kind.threshold is None:
        return None
    facts = facts_over(watch, [subject.number], since - watch.kind.reach, until, every=True)[subject.number]
    if not _has_values(watch, facts, since, until):
        return None
    allowed = per_week * max(1.0, (until - since) / WEEK)  # a history shorter than a week counts as a week
    low, high = 0, len(ladder := _ladder(watch.kind.threshold)) - 1
    while low < high:
        middle = (low + high) // 2
        if _incidents(watch, facts, ladder[middle], since, until) < allowed:
            high = middle
        else:
            low = middle + 1
    incidents = _incidents(watch, facts, ladder[low], since, until)
    return Suggestion(ladder[low], incidents) if incidents < allowed else None


def _incidents(watch: Watch, facts: Facts, threshold: int, since: datetime, until: datetime) -> int:
    other = replace(watch, terms=replace(watch.terms, threshold=threshold))
    return sum(each.move is Move.OPENED for each in walk_through(other, facts, since, until))


def _has_values(watch: Watch, facts: Facts, since: datetime, until: datetime) -> bool:
    moments: Iterable[datetime] = (until, *watch.kind.moments(facts, watch.terms, since, until))
    return any(watch.kind.value(facts, watch.terms, at) is not None for at in moments if since < at <= until)


def _ladder(allowed: Number) -> list[int]:
    """Return the round thresholds within the range, lowest first: 1, 2, 3, 5, 7, 10, 15, 20, 30 … of the unit."""
    steps = (1, 1.5, 2, 3, 5, 7)
    base = {Unit.SECONDS: 60, Unit.MILLISECONDS: 1, Unit.BYTES: 1024}.get(allowed.unit, 1)
    rounds = (round(base * step * 10**power) for power in range(16) for step in steps)
    return sorted({allowed.least, *(each for each in rounds if allowed.least < each < allowed.most), allowed.most})
