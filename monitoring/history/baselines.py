"""What is usual for a job at an hour of the week, and where its state and its checkpoints' durations are going.

For rules that are relative to a job's own history, and for diagnosis. Nothing is told of what there is too little of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from statistics import median
from typing import Any, TypeVar

from django.core.cache import cache
from django.db import connection

from monitoring.history.expectations import OF_THE_WEEK, Expectation, Forecast
from monitoring.history.pipeline.columns import DAY, HOUR
from monitoring.history.quantiles import NotRolledUp, Told, UnknownSketch, told_by
from monitoring.history.stretches import Stretch
from monitoring.models import Job

T = TypeVar("T")

WEEKS = 4
MADE = 20_000  # as many checkpoints that no roll-up tells of are read for somebody who waits
LEAST = 3  # hours that an expectation rests on
LEAST_DAYS = 7  # days that a forecast rests on
FARTHEST = timedelta(days=365)  # nothing is foretold beyond
# Of values that scatter normally this times the median deviation is the standard deviation.
_SCATTER = 1.4826


def usual(job: Job, at: datetime, *, most: int | None = None) -> Mapping[str, Expectation]:
    """By "duration", "state_size" and "interval", from the four weeks before the day of `at`; what is not known is left
    out. Of the same hour of the week, else of the day, else of all hours: the first of which there are enough. `most`:
    see stretches.read."""
    until = _midnight(at)
    weeks = Stretch(until - timedelta(weeks=WEEKS), until)
    hours = told_by(job, weeks, ("duration", "state_size"), (0.5,), seconds=HOUR, most=most)
    durations, sizes = ([each[figure] for each in hours] for figure in ("duration", "state_size"))
    found = {
        "duration": _expectation(durations, at, _median_of),
        "state_size": _expectation(sizes, at, _median_of),
        "interval": _expectation(durations, at, _interval_of),
    }
    return {name: each for name, each in found.items() if each is not None}


def forecast(job: Job, now: datetime, *, most: int | None = None) -> Forecast:
    """From the whole days of the last four weeks. Growth is the median of that between any two days, so that a day that
    was different does not count."""
    until = _midnight(now)
    weeks = Stretch(until - timedelta(weeks=WEEKS), until)
    days = told_by(job, weeks, ("state_size", "duration"), (0.5, 0.95), seconds=DAY, most=most)
    sizes = [(each["state_size"].start, each["state_size"].median) for each in days]
    slow = [(each["duration"].start, each["duration"].p95) for each in days]
    slowing = _slope(slow)
    timeout = (job.current_run.checkpoint_config or {}).get("timeout") if job.current_run else None
    return Forecast(_slope(sizes), slowing, _reached(slow, slowing, timeout, now), len(slow))


def usual_from_rollups(job: Job, at: datetime) -> Mapping[str, Expectation]:
    """As `usual`, for who waits: of roll-ups, remembered for the hour; nothing where they do not reach."""
    name = f"usual:{connection.settings_dict['NAME']}:{job.pk}:{int(at.timestamp()) // HOUR}"
    return _remembered(name, lambda: usual(job, at, most=MADE)) or {}


def forecast_from_rollups(job: Job, now: datetime) -> Forecast | None:
    """As `forecast`, for who waits."""
    timeout = (job.current_run.checkpoint_config or {}).get("timeout") if job.current_run else None
    name = f"forecast:{connection.settings_dict['NAME']}:{job.pk}:{timeout}:{_midnight(now):%Y%m%d}"
    return _remembered(name, lambda: forecast(job, now, most=MADE))


def _remembered(name: str, read: Callable[[], T]) -> T | None:
    """Computed once an hour in a process: it is of whole days that are over. That there is nothing is not kept."""
    kept: T | None = cache.get(name)
    if kept is not None:
        return kept
    try:
        found = read()
    except (NotRolledUp, UnknownSketch):
        return None
    cache.set(name, found, HOUR)
    return found


def _expectation(hours: Sequence[Told], at: datetime, value_of: Callable[[Told], float | None]) -> Expectation | None:
    hour = at.astimezone(UTC).hour
    known = [(each.start, value) for each in hours if (value := value_of(each)) is not None]
    for basis, fits in (
        (OF_THE_WEEK, lambda start: start.hour == hour and start.weekday() == at.astimezone(UTC).weekday()),
        ("this hour of the day", lambda start: start.hour == hour),
        ("all hours", lambda start: True),
    ):
        values = [value for start, value in known if fits(start)]
        if len(values) >= LEAST:
            middle = median(values)
            scatter = _SCATTER * median(abs(value - middle) for value in values)
            return Expectation(middle, scatter, f"{basis}, the last {WEEKS} weeks", len(values))
    return None


def _median_of(told: Told) -> float | None:
    return told.quantiles[0.5]


def _interval_of(told: Told) -> float | None:
    return HOUR / told.counts["completed"] if told.counts["completed"] else None


def _slope(points: Sequence[tuple[datetime, float | None]]) -> float | None:
    """Of a day (Theil and Sen's estimator)."""
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
    # The middle of the last week stands for three days ago.
    days = (timeout - median(known)) / slope - LEAST_DAYS // 2
    if days > FARTHEST.days:
        return None
    return _midnight(now) + timedelta(days=max(0.0, days))


def _midnight(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
