"""When a page tells a time from roll-ups, and which: of so many checkpoints that reading them takes too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import gcd

from django.db.models import Sum

from dashboard.queries.series import CheckpointPoint, Span, read_points
from monitoring.history.pipeline.columns import DAY, HOUR
from monitoring.history.quantiles import NotRolledUp, Told, UnknownSketch, told_by
from monitoring.history.stretches import SLACK, Stretch, hours_from, whole_days
from monitoring.models import Job, Rollup, Run

EXACT = 10_000  # as many checkpoints are read one by one
MADE = 30_000  # as many that no roll-up tells of are read beside roll-ups
SHARES = (0.5, 0.95)  # that charts draw
_WEEK = 168  # hours
_LONG = timedelta(days=7)


@dataclass(frozen=True)
class Asked:
    """`stretch`: the part of a span that is told; `at_least`: as many completed checkpoints roll-ups know in it, other
    runs' in the first and last hours included; `days`: the stretch with the whole of each day at its ends of which
    there are neither hours nor checkpoints any more; None: there are."""

    stretch: Stretch
    at_least: int
    days: Stretch | None = None

    @property
    def is_long(self) -> bool:
        return self.at_least > EXACT or self.days is not None

    @property
    def rolled(self) -> Stretch:
        """What roll-ups are asked for."""
        return self.days or self.stretch


def ask(job: Job, span: Span) -> Asked:
    """A few short statements."""
    stretch = _stretch(job, span)
    kept_from = hours_from()
    if kept_from is None or stretch.start >= kept_from:
        return Asked(stretch, _completed(job, stretch, HOUR if stretch.end - stretch.start <= _LONG else DAY))
    return Asked(stretch, _completed(job, stretch, DAY), whole_days(job, stretch))


def _stretch(job: Job, span: Span) -> Stretch:
    """The end of a span belongs to it, that of a stretch does not."""
    start, end = span.start, span.end + timedelta(microseconds=1)
    run = Run.objects.filter(job=job, number=span.run).first() if span.run else None
    if run is None:
        return Stretch(start, end)
    start = max(start, run.started_at - SLACK)
    return Stretch(start, max(start, min(end, run.ended_at + SLACK) if run.ended_at else end), run.pk)


def _completed(job: Job, stretch: Stretch, seconds: int) -> int:
    """Of whole hours or days within it."""
    last = stretch.end - timedelta(seconds=seconds)
    within = Rollup.objects.filter(job=job, seconds=seconds, start__gte=stretch.start, start__lte=last)
    return within.aggregate(completed=Sum("completed"))["completed"] or 0


def some_hours(stretch: Stretch, completed: int) -> tuple[int, list[datetime]]:
    """Every n-th hour of it (n first), so that they have about EXACT of its completed checkpoints; over time all hours
    of the week are among them."""
    apart = completed // EXACT + 1
    while gcd(apart, _WEEK) > 1:
        apart += 1
    first, last = int(stretch.start.timestamp()) // HOUR, int(stretch.end.timestamp()) // HOUR
    at = stretch.start.replace(minute=0, second=0, microsecond=0)
    return apart, [at + timedelta(hours=n - first) for n in range(first, last + 1) if n % apart == 0]


@dataclass(frozen=True)
class RolledPoint:
    """An hour or a UTC day of a chart; the first and the last are of the part that lies in the span."""

    start: datetime
    end: datetime
    figures: Mapping[str, Told]

    def count(self, what: str) -> int:
        return next(iter(self.figures.values())).counts[what]


@dataclass(frozen=True)
class RolledSeries:
    """`points`: None where checkpoints are to be read one by one; `behind`: although there are many, and why.
    `whole_days`: also those that the span begins and ends in, see Asked."""

    points: list[RolledPoint] | None = None
    behind: str = ""
    whole_days: bool = False


def read_series(job: Job, span: Span, figures: Sequence[str], *, seen: int | None = None) -> RolledSeries:
    """Of a long time; with `seen`, checkpoints that were found in it, also of one of which roll-ups know more."""
    asked = ask(job, span)
    if not asked.is_long and (seen is None or seen >= asked.at_least):
        return RolledSeries()
    try:
        found = told_by(job, asked.rolled, figures, SHARES, most=MADE)
    except (NotRolledUp, UnknownSketch) as why:
        return RolledSeries(behind=str(why))
    points = [RolledPoint(each[figures[0]].start, each[figures[0]].end, each) for each in found]
    return RolledSeries(points, whole_days=asked.days is not None)


def read_chart(job: Job, span: Span, figures: Sequence[str]) -> tuple[RolledSeries, list[CheckpointPoint]]:
    """From roll-ups of a long time, or of one whose checkpoints are not there any more; else the checkpoints."""
    rolled = read_series(job, span, figures)
    if rolled.points is not None:
        return rolled, []
    points = read_points(job, span)
    completed = sum(point.stands_for for point in points if not point.failed)
    return (rolled if rolled.behind else read_series(job, span, figures, seen=completed)), points
