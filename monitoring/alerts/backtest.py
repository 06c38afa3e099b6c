"""Backtests: walk a rule over stored history and return the incidents it would have opened. Nothing is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.alerts.rule_facts import Facts
from monitoring.alerts.standing import facts_over
from monitoring.alerts.verdicts import finding_of
from monitoring.alerts.walk import Move, State, Transition, Watch, advance
from monitoring.reasons.reason import Reason

LOUDEST = 5
AT_ONCE = 200  # jobs whose facts are in memory at the same time
POINTS = 720  # upper limit of the points in a chart


@dataclass(frozen=True)
class OpenPeriod:
    """An incident that the rule would have opened, or did open. `closed_at` is None if it would be open still.

    `finding` is a text if an older version stored the incident.
    """

    opened_at: datetime
    closed_at: datetime | None
    finding: Reason | str
    flapping: bool


@dataclass(frozen=True)
class Point:
    """The rule's value and limit at one moment, each None if it could not be computed then."""

    at: datetime
    value: float | None
    limit: float | None


@dataclass(frozen=True)
class Replay:
    since: datetime
    until: datetime
    incidents: list[OpenPeriod]
    points: list[Point]

    @property
    def has_values(self) -> bool:
        return any(point.value is not None for point in self.points)


@dataclass(frozen=True)
class Watched:
    """What a rule watches: a job or a cluster by its primary key, or Waymark (memory.WAYMARK).

    `since`: the start of its history, if known.
    """

    number: int
    name: str
    since: datetime | None = None


@dataclass(frozen=True)
class Count:
    """How many incidents the rule would have opened for the first `looked_at` of `of` subjects.

    A subject that is not in `incidents` had none.
    """

    incidents: dict[Watched, int]
    looked_at: int
    of: int

    @property
    def total(self) -> int:
        return sum(self.incidents.values())

    @property
    def is_complete(self) -> bool:
        return self.looked_at == self.of

    @property
    def loudest(self) -> list[tuple[str, int]]:
        loud = ((each.name, incidents) for each, incidents in self.incidents.items() if incidents)
        return sorted(loud, key=lambda each: -each[1])[:LOUDEST]


def replay(watch: Watch, subject: Watched, since: datetime, until: datetime) -> Replay:
    """Replay the rule over (since, until]. What is true at `since` counts as if the rule had been created then."""
    facts = facts_over(watch, [subject.number], since - watch.kind.reach, until, every=True)[subject.number]
    transitions = walk_through(watch, facts, since, until)
    return Replay(
        since, until, _incidents(watch, facts, transitions, subject), _points(watch, facts, transitions, since, until)
    )


def count(
    watch: Watch,
    subjects: Sequence[Watched],
    since: datetime,
    until: datetime,
    budget_s: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> Count:
    """Count the incidents of the subjects in order, AT_ONCE at a time, until the budget is spent."""
    begun, looked_at = monotonic(), 0
    incidents: dict[Watched, int] = {}
    while looked_at < len(subjects) and (not looked_at or monotonic() - begun <= budget_s):
        some = subjects[looked_at : looked_at + AT_ONCE]
        facts = facts_over(watch, [each.number for each in some], since - watch.kind.reach, until)
        incidents |= {each: _opened(watch, facts[each.number], since, until) for each in some if each.number in facts}
        looked_at += len(some)
    return Count(incidents, looked_at, len(subjects))


def _opened(watch: Watch, facts: Facts, since: datetime, until: datetime) -> int:
    return sum(each.move is Move.OPENED for each in walk_through(watch, facts, since, until))


def walk_through(watch: Watch, facts: Facts, since: datetime, until: datetime) -> list[Transition]:
    state, at_first = advance(watch, facts, State(), None, since)
    _, later = advance(watch, facts, state, since, until)
    return [*at_first, *later]


def _incidents(watch: Watch, facts: Facts, transitions: list[Transition], subject: Watched) -> list[OpenPeriod]:
    """Return each opening with the closing that follows it."""
    closings = iter([each.at for each in transitions if each.move is Move.CLOSED])
    return [
        OpenPeriod(
            each.at,
            next(closings, None),
            finding_of(watch, facts, each.seen_at, subject.name, each.flapping).reason,
            each.flapping,
        )
        for each in transitions
        if each.move is Move.OPENED
    ]


def _points(watch: Watch, facts: Facts, transitions: list[Transition], since: datetime, until: datetime) -> list[Point]:
    """Return the points at which the value may change.

    If there are too many, keep the highest and the last point of each bucket, so that no peak is lost.
    """
    moments = {at for at in watch.kind.moments(facts, watch.terms, since, until) if since < at <= until}
    step = (until - since) / (POINTS // 2)
    grid = {since + step * number for number in range(POINTS // 2 + 1)} if watch.kind.by_absence else {since, until}
    moves = {each.at for each in transitions if since <= each.at <= until}
    points = [_point(watch, facts, at) for at in sorted(moments | grid | moves)]
    return points if len(points) <= POINTS else _thinned(points, since, (until - since) / (POINTS // 2))


def _point(watch: Watch, facts: Facts, at: datetime) -> Point:
    kind, terms = watch.kind, watch.terms
    return Point(at, kind.value(facts, terms, at), kind.limit(facts, terms, at))


def _thinned(points: list[Point], since: datetime, bucket: timedelta) -> list[Point]:
    buckets: dict[int, list[Point]] = {}
    for point in points:
        buckets.setdefault((point.at - since) // bucket, []).append(point)
    kept: list[Point] = []
    for within in buckets.values():
        highest = max(within, key=lambda point: point.value if point.value is not None else -1)
        kept += [highest] if highest is within[-1] else [highest, within[-1]]
    return kept
