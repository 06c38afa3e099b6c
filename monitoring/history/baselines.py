"""Compute what is usual for a job at an hour of the week, and forecast its state size and checkpoint durations.

Diagnosis uses the results. A figure with too little history has no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from statistics import median
from typing import Any, TypeVar

from django.core.cache import cache
from django.db import connection

from monitoring.history.catalogue import floor
from monitoring.history.expectations import Basis, Expectation, Forecast
from monitoring.history.pipeline.columns import DAY, HOUR
from monitoring.history.quantiles import NotRolledUp, RangeFigures, UnknownSketch, figures_by_part, figures_of_ranges
from monitoring.history.stretches import Stretch
from monitoring.models import Job

T = TypeVar("T")

WEEKS = 4  # the texts of Basis contain the number of weeks
MADE = 20_000  # a page reads at most this many checkpoints that no roll-up contains
LEAST = 3  # an expected value needs at least this many hours of history
LEAST_DAYS = 7  # a forecast needs at least this many days of history
FARTHEST = timedelta(days=365)  # a forecast does not look further ahead
# For a normal distribution, the standard deviation is this factor times the median deviation.
_SCATTER = 1.4826


def usual(job: Job, at: datetime, *, most: int | None = None) -> Mapping[str, Expectation]:
    """Return the usual "duration", "state_size" and "interval" from the four weeks before the day of `at`.

    Each is computed from the same hour of the week, else of the day, else from all hours: the first basis with enough
    data. A figure without enough data is left out. `most`: see stretches.read.
    """
    found: dict[str, Expectation] = {}
    for basis, hours in _ever_more_hours(job, at, most):
        for name, expected in _expectations(basis, hours).items():
            found.setdefault(name, expected)
        if len(found) == len(_EXPECTED):
            break
    return found


def _ever_more_hours(
    job: Job, at: datetime, most: int | None
) -> Iterator[tuple[Basis, Sequence[Mapping[str, RangeFigures]]]]:
    """Yield the hours to compare with and their basis: of the week, of the day, then all hours.

    Reading and decoding an hour is slow, so the caller stops as soon as it has enough hours.
    """
    until, hour = floor(at, DAY), timedelta(hours=at.astimezone(UTC).hour)
    days = [until - timedelta(days=n) + hour for n in range(7 * WEEKS, 0, -1)]
    for basis, chosen in ((Basis.HOUR_OF_THE_WEEK, days[::7]), (Basis.HOUR_OF_THE_DAY, days)):
        stretches = [Stretch(day, day + timedelta(hours=1)) for day in chosen]
        yield basis, figures_of_ranges(job, stretches, ("duration", "state_size"), (0.5,), most=most)
    weeks = Stretch(until - timedelta(weeks=WEEKS), until)
    yield Basis.ALL_HOURS, figures_by_part(job, weeks, ("duration", "state_size"), (0.5,), seconds=HOUR, most=most)


def forecast(job: Job, now: datetime, *, most: int | None = None) -> Forecast:
    """Forecast from the whole days of the last four weeks.

    Growth is the median over all pairs of days, so that single unusual days do not matter.
    """
    until = floor(now, DAY)
    weeks = Stretch(until - timedelta(weeks=WEEKS), until)
    days = figures_by_part(job, weeks, ("state_size", "duration"), (0.5, 0.95), seconds=DAY, most=most)
    sizes = [(each["state_size"].start, each["state_size"].median) for each in days]
    slow = [(each["duration"].start, each["duration"].p95) for each in days]
    slowing = _slope(slow)
    timeout = (job.current_run.checkpoint_config or {}).get("timeout") if job.current_run else None
    return Forecast(_slope(sizes), slowing, _reached(slow, slowing, timeout, now), len(slow))


def usual_from_rollups(job: Job, at: datetime) -> Mapping[str, Expectation]:
    """Return `usual` for a page that waits: from roll-ups and cached for an hour, or empty if roll-ups are missing."""
    name = f"usual:{connection.settings_dict['NAME']}:{job.pk}:{int(at.timestamp()) // HOUR}"
    return _remembered(name, lambda: usual(job, at, most=MADE)) or {}


def forecast_from_rollups(job: Job, now: datetime) -> Forecast | None:
    """Return `forecast` for a page that waits: from roll-ups and cached, or None if roll-ups are missing."""
    timeout = (job.current_run.checkpoint_config or {}).get("timeout") if job.current_run else None
    name = f"forecast:{connection.settings_dict['NAME']}:{job.pk}:{timeout}:{floor(now, DAY):%Y%m%d}"
    return _remembered(name, lambda: forecast(job, now, most=MADE))


def _remembered(name: str, read: Callable[[], T]) -> T | None:
    """Return the cached result, or compute it and cache it for an hour. A missing result is not cached."""
    kept: T | None = cache.get(name)
    if kept is not None:
        return kept
    try:
        found = read()
    except (NotRolledUp, UnknownSketch):
        return None
    cache.set(name, found, HOUR)
    return found


def _expectations(basis: Basis, hours: Sequence[Mapping[str, RangeFigures]]) -> dict[str, Expectation]:
    """Return the expectations of the figures that enough hours have."""
    values = {name: [value for each in hours if (value := of(each)) is not None] for name, of in _EXPECTED.items()}
    return {name: _expectation(basis, of) for name, of in values.items() if len(of) >= LEAST}


def _expectation(basis: Basis, values: Sequence[float]) -> Expectation:
    middle = median(values)
    scatter = _SCATTER * median(abs(value - middle) for value in values)
    return Expectation(middle, scatter, basis(), len(values))


def _interval_of(hour: RangeFigures) -> float | None:
    return HOUR / hour.counts["completed"] if hour.counts["completed"] else None


_EXPECTED: Mapping[str, Callable[[Mapping[str, RangeFigures]], float | None]] = {
    "duration": lambda hour: hour["duration"].median,
    "state_size": lambda hour: hour["state_size"].median,
    "interval": lambda hour: _interval_of(hour["duration"]),
}


def _slope(points: Sequence[tuple[datetime, float | None]]) -> float | None:
    """Return the growth per day (Theil–Sen estimator)."""
    known = [(at.timestamp() / DAY, value) for at, value in points if value is not None]
    if len(known) < LEAST_DAYS:
        return None
    return median((later[1] - sooner[1]) / (later[0] - sooner[0]) for sooner, later in combinations(known, 2))


def _reached(
    points: Sequence[tuple[datetime, float | None]], slope: float | None, timeout: Any, now: datetime
) -> datetime | None:
    known = [value for _, value in points[-LEAST_DAYS:] if value is not None]
    if slope is None or slope <= 0 or not isinstance(timeout, int) or not known:
        return None
    # The median of the last week is the value of three days ago.
    days = (timeout - median(known)) / slope - LEAST_DAYS // 2
    if days > FARTHEST.days:
        return None
    return floor(now, DAY) + timedelta(days=max(0.0, days))
