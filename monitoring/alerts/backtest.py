"""What a rule would have done: the walk of live evaluation, over stored history, with nothing written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.alerts.facts import Facts
from monitoring.alerts.standing import facts_over
from monitoring.alerts.verdicts import finding_of
from monitoring.alerts.walk import Move, State, Transition, Watch, advance
from monitoring.models import Job

POINTS = 720  # drawn at most, besides the moments at which something opened or closed


@dataclass(frozen=True)
class Bout:
    """An incident that would have been. `closed_at` None: it would still be open."""

    opened_at: datetime
    closed_at: datetime | None
    sentence: str
    flapping: bool


@dataclass(frozen=True)
class Point:
    """None: nothing could be said then."""

    at: datetime
    value: float | None
    limit: float | None


@dataclass(frozen=True)
class Replay:
    since: datetime
    until: datetime
    bouts: list[Bout]
    points: list[Point]

    @property
    def has_values(self) -> bool:
        return any(point.value is not None for point in self.points)


def replay(watch: Watch, job: Job, since: datetime, until: datetime) -> Replay:
    """Over (since, until]; what was the case at `since` counts as if the rule had been made then."""
    facts = facts_over(watch, job, since - watch.kind.reach, until)
    transitions = walk_through(watch, facts, since, until)
    return Replay(
        since, until, _bouts(watch, facts, transitions, job), _points(watch, facts, transitions, since, until)
    )


def walk_through(watch: Watch, facts: Facts, since: datetime, until: datetime) -> list[Transition]:
    state, at_first = advance(watch, facts, State(), None, since)
    _, later = advance(watch, facts, state, since, until)
    return [*at_first, *later]


def _bouts(watch: Watch, facts: Facts, transitions: list[Transition], job: Job) -> list[Bout]:
    """Every opening with the closing that follows it."""
    closings = iter([each.at for each in transitions if each.move is Move.CLOSED])
    return [
        Bout(
            each.at,
            next(closings, None),
            finding_of(watch, facts, each.seen_at, job.name, each.flapping).sentence,
            each.flapping,
        )
        for each in transitions
        if each.move is Move.OPENED
    ]


def _points(watch: Watch, facts: Facts, transitions: list[Transition], since: datetime, until: datetime) -> list[Point]:
    """Where the value may change, thinned: of every bucket the highest and the last, so that no peak is lost."""
    moments = {at for at in watch.kind.moments(facts, watch.terms, since, until) if since < at <= until}
    step = (until - since) / (POINTS // 2)
    grid = {since + step * number for number in range(POINTS // 2 + 1)} if watch.kind.by_absence else {since, until}
    told = {each.at for each in transitions if since <= each.at <= until}
    points = [_point(watch, facts, at) for at in sorted(moments | grid | told)]
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
