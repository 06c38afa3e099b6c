"""Find a change of the rate at which a job reads rows. It is known for queries that programs or event logs report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import sqrt
from statistics import median

from django.db.models import Max

from dashboard.queries.series import Span
from monitoring.models import Job, ReportedMinute, ReportedRun

MINUTE = timedelta(minutes=1)
# In a longer time, the input of most jobs rises and falls anyway.
LONGEST = timedelta(hours=2)
# The time and the steps that are needed on each side of a change.
_LEAST_TIME_S = 300.0
_LEAST_STEPS = 3
# Smaller changes are noise: as a factor, in rows per second, and in standard deviations of the rate.
_LEAST_FACTOR = 1.5
_LEAST_DIFFERENCE = 1.0
_LEAST_DEVIATIONS = 2.0


@dataclass(frozen=True)
class RateChange:
    """The rates before and after a change, in rows per second."""

    at: datetime
    before: float
    after: float


@dataclass(frozen=True)
class _Step:
    """The rows that were read from the end of one minute with batches to the end of the next."""

    start: datetime
    seconds: float
    rows: int


def read_rate_change(job: Job, span: Span) -> RateChange | None:
    """Return the largest change of the input rate within a span of at most two hours."""
    queries = list(job.watched_queries.values_list("query_id", flat=True))
    if not queries or span.end - span.start > LONGEST:
        return None
    # The last minute must be over. Two clusters may report the same run.
    within = ReportedMinute.objects.filter(
        run__query_id__in=queries, at__gte=span.start, at__lte=span.end - MINUTE
    ).values_list("run__run_id", "at")
    rows: dict[datetime, int | None] = {}
    for _run, at, most in within.annotate(most=Max("rows")).order_by("at"):
        known = rows.get(at, 0)
        rows[at] = None if known is None or most is None else known + most
    return find_change([*rows.items(), *_without_input(queries, max(rows, default=None), span)])


def find_change(minutes: Sequence[tuple[datetime, int | None]]) -> RateChange | None:
    """Return the largest change between minutes with their numbers of rows, in order, or None if there is only noise.

    Minutes may be missing: the rows of a minute were read since the minute before it in the list. None: unknown.
    """
    steps = [
        _Step(before + MINUTE, (at - before).total_seconds(), rows)
        for (before, _), (at, rows) in pairwise(minutes)
        if rows is not None
    ]
    numbers = range(_LEAST_STEPS, len(steps) - _LEAST_STEPS + 1)
    number = max(numbers, key=lambda each: _weight(steps[:each], steps[each:]), default=0)
    before, after = steps[:number], steps[number:]
    if _weight(before, after) == 0:
        return None
    deviation = sqrt((_squares(before) + _squares(after)) / (_seconds(before) + _seconds(after)))
    means_differ = _differ(_rate(before), _rate(after), max(_LEAST_DIFFERENCE, _LEAST_DEVIATIONS * deviation))
    # A short burst moves the mean, but not the median.
    if not (means_differ and _differ(_median(before), _median(after), _LEAST_DIFFERENCE)):
        return None
    return RateChange(after[0].start, _rate(before), _rate(after))


def _without_input(queries: Sequence[str], last: datetime | None, span: Span) -> list[tuple[datetime, int]]:
    """Return the minutes between the last batch and the time at which Spark last found no input since that batch."""
    runs = ReportedRun.objects.filter(query_id__in=queries)
    known = runs.aggregate(batch=Max("minutes__at"), idle=Max("idle_at"))
    if last is None or last != known["batch"] or known["idle"] is None:
        return []
    count = (min(known["idle"], span.end) - last) // MINUTE - 1
    return [(last + number * MINUTE, 0) for number in range(1, count + 1)]


def _weight(before: Sequence[_Step], after: Sequence[_Step]) -> float:
    """Return how much a split explains of the variance of the rate. 0: a side is too short."""
    if min(_seconds(before), _seconds(after)) < _LEAST_TIME_S:
        return 0
    return _seconds(before) * _seconds(after) * (_rate(before) - _rate(after)) ** 2


def _differ(one: float, other: float, least: float) -> bool:
    low, high = sorted((one, other))
    return high >= low * _LEAST_FACTOR and high - low >= least


def _seconds(steps: Sequence[_Step]) -> float:
    return sum(step.seconds for step in steps)


def _rate(steps: Sequence[_Step]) -> float:
    return sum(step.rows for step in steps) / _seconds(steps)


def _median(steps: Sequence[_Step]) -> float:
    return median(step.rows / step.seconds for step in steps)


def _squares(steps: Sequence[_Step]) -> float:
    mean = _rate(steps)
    return sum(step.seconds * (step.rows / step.seconds - mean) ** 2 for step in steps)
