"""Decide whether a page reads roll-ups, because a span has too many checkpoints to read them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import gcd

from django.db.models import Sum

from dashboard.queries.series import CheckpointPoint, Span, read_points
from monitoring.history.pipeline.columns import DAY, HOUR
from monitoring.history.quantiles import NotRolledUp, RangeFigures, UnknownSketch, figures_by_part
from monitoring.history.stretches import SLACK, Stretch, hours_from, whole_days
from monitoring.models import Job, Rollup, Run

EXACT = 10_000  # up to this number, checkpoints are read one by one
MAX_UNROLLED = 30_000  # the most checkpoints without a roll-up that are read in addition to roll-ups
SHARES = (0.5, 0.95)  # the quantiles that charts draw
_WEEK = 168  # hours
_LONG = timedelta(days=7)


@dataclass(frozen=True)
class RangeToRead:
    """The time range that a page reads.

    `stretch` is the range within the span. `at_least` is its number of completed checkpoints by the roll-ups of its
    whole hours or days. `days` is the range extended to whole days, if only the roll-ups of days still exist for its
    ends; else None.
    """

    stretch: Stretch
    at_least: int
    days: Stretch | None = None

    @property
    def is_long(self) -> bool:
        return self.at_least > EXACT or self.days is not None

    @property
    def rolled(self) -> Stretch:
        """Return the range for which roll-ups are read."""
        return self.days or self.stretch


def range_to_read(job: Job, span: Span) -> RangeToRead:
    """Return the time range of a span and its number of checkpoints, by a few short statements."""
    stretch = _to_stretch(job, span)
    hours_kept_from = hours_from()
    if hours_kept_from is None or stretch.start >= hours_kept_from:
        return RangeToRead(
            stretch, _count_completed(job, stretch, HOUR if stretch.end - stretch.start <= _LONG else DAY)
        )
    return RangeToRead(stretch, _count_completed(job, stretch, DAY), whole_days(job, stretch))


def _to_stretch(job: Job, span: Span) -> Stretch:
    """Convert a Span, which includes its end, to a Stretch, which excludes its end."""
    start, end = span.start, span.end + timedelta(microseconds=1)
    run = Run.objects.filter(job=job, number=span.run).first() if span.run else None
    if run is None:
        return Stretch(start, end)
    start = max(start, run.started_at - SLACK)
    return Stretch(start, max(start, min(end, run.ended_at + SLACK) if run.ended_at else end), run.pk)


def _count_completed(job: Job, stretch: Stretch, seconds: int) -> int:
    """Count the completed checkpoints in the whole hours or days within the time range."""
    last = stretch.end - timedelta(seconds=seconds)
    within = Rollup.objects.filter(job=job, seconds=seconds, start__gte=stretch.start, start__lte=last)
    return within.aggregate(completed=Sum("completed"))["completed"] or 0


def sample_hours(stretch: Stretch, completed: int) -> tuple[int, list[datetime]]:
    """Return n and every n-th hour of the time range, which have together about EXACT completed checkpoints.

    n and the hours of a week have no common divisor, so a long time range includes every hour of the week.
    """
    apart = completed // EXACT + 1
    while gcd(apart, _WEEK) > 1:
        apart += 1
    first, last = int(stretch.start.timestamp()) // HOUR, int(stretch.end.timestamp()) // HOUR
    at = stretch.start.replace(minute=0, second=0, microsecond=0)
    return apart, [at + timedelta(hours=n - first) for n in range(first, last + 1) if n % apart == 0]


@dataclass(frozen=True)
class RolledPoint:
    """An hour or a UTC day of a chart. The first and the last point cover only their part within the span."""

    start: datetime
    end: datetime
    figures: Mapping[str, RangeFigures]

    def count(self, what: str) -> int:
        return next(iter(self.figures.values())).counts[what]


@dataclass(frozen=True)
class RolledSeries:
    """The points of a chart from roll-ups.

    `points` is None if checkpoints must be read one by one. If they are many, `behind` is the reason why roll-ups are
    missing. `whole_days` says that the first and the last day are included as a whole.
    """

    points: list[RolledPoint] | None = None
    behind: str = ""
    whole_days: bool = False


def read_series(job: Job, span: Span, figures: Sequence[str], *, seen: int | None = None) -> RolledSeries:
    """Return the points of a long span.

    `seen` is the number of checkpoints in the database. If roll-ups count more, the roll-ups of a short span are read
    too.
    """
    to_read = range_to_read(job, span)
    if not to_read.is_long and (seen is None or seen >= to_read.at_least):
        return RolledSeries()
    try:
        found = figures_by_part(job, to_read.rolled, figures, SHARES, most=MAX_UNROLLED)
    except (NotRolledUp, UnknownSketch) as why:
        return RolledSeries(behind=str(why))
    points = [RolledPoint(each[figures[0]].start, each[figures[0]].end, each) for each in found]
    return RolledSeries(points, whole_days=to_read.days is not None)


def read_chart(
    job: Job, span: Span, figures: Sequence[str], axis: Span | None = None
) -> tuple[RolledSeries, list[CheckpointPoint]]:
    """Return roll-ups if the span is long or its checkpoints are deleted, else the checkpoints.

    Checkpoints are thinned for the axis if that covers more time than the span.
    """
    rolled = read_series(job, span, figures)
    if rolled.points is not None:
        return rolled, []
    points = read_points(job, axis or span)
    completed = sum(point.stands_for for point in points if not point.failed)
    return (rolled if rolled.behind else read_series(job, span, figures, seen=completed)), points
