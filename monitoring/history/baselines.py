"""What is usual for a job at an hour of the week, and where its state and its checkpoints' durations are going.

For rules that are relative to a job's own history, and for diagnosis. Nothing is told of what there is too little of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import combinations
from statistics import median
from typing import Any

from monitoring.history.pipeline.columns import DAY, HOUR
from monitoring.history.quantiles import Told, series
from monitoring.models import Job

WEEKS = 4
LEAST = 3  # hours that an expectation rests on
LEAST_DAYS = 7  # days that a forecast rests on
FARTHEST = timedelta(days=365)  # nothing is foretold beyond
# Of values that scatter normally this times the median deviation is the standard deviation.
_SCATTER = 1.4826


@dataclass(frozen=True)
class Expectation:
    """The median of what the hours had, and how they scatter about it (a robust standard deviation).

    Durations in milliseconds, sizes in bytes, the interval in seconds. `basis`: which hours, in words; `hours`: how
    many.
    """

    expected: float
    spread: float
    basis: str
    hours: int

    def deviations(self, value: float) -> float:
        """How many spreads `value` lies above (below: negative) what is expected; a tenth of it is the least spread."""
        return (value - self.expected) / max(self.spread, abs(self.expected) / 10, 1e-9)


@dataclass(frozen=True)
class Forecast:
    """Growth of a day, by the days looked at. `exceeds_timeout_on`: the day on which the p95 of durations reaches the
    checkpoint time-out if it goes on so; None: it does not, or not within a year, or there is too little to tell."""

    state_per_day: float | None
    duration_per_day: float | None
    exceeds_timeout_on: datetime | None
    days: int


def usual(job: Job, at: datetime) -> Mapping[str, Expectation]:
    """By "duration", "state_size" and "interval", from the four weeks before the day of `at`; what is not known is left
    out. Of the same hour of the week, else of the day, else of all hours: the first of which there are enough."""
    until = _midnight(at)
    hours = {
        figure: series(job, until - timedelta(weeks=WEEKS), until, figure, (0.5,), seconds=HOUR)
        for figure in ("duration", "state_size")
    }
    found = {
        "duration": _expectation(hours["duration"], at, _median_of),
        "state_size": _expectation(hours["state_size"], at, _median_of),
        "interval": _expectation(hours["duration"], at, _interval_of),
    }
    return {name: each for name, each in found.items() if each is not None}


def forecast(job: Job, now: datetime) -> Forecast:
    """From the whole days of the last four weeks. Growth is the median of that between any two days, so that a day that
    was different does not count."""
    until = _midnight(now)
    since = until - timedelta(weeks=WEEKS)
    sizes = [(each.start, each.quantiles[0.5]) for each in series(job, since, until, "state_size", (0.5,), seconds=DAY)]
    slow = [(each.start, each.quantiles[0.95]) for each in series(job, since, until, "duration", (0.95,), seconds=DAY)]
    growth = _slope(sizes)
    slowing = _slope(slow)
    timeout = (job.current_run.checkpoint_config or {}).get("timeout") if job.current_run else None
    return Forecast(growth, slowing, _reached(slow, slowing, timeout, now), len(slow))


def _expectation(hours: Sequence[Told], at: datetime, value_of: Callable[[Told], float | None]) -> Expectation | None:
    hour = at.astimezone(UTC).hour
    known = [(each.start, value) for each in hours if (value := value_of(each)) is not None]
    for basis, fits in (
        ("this hour of the week", lambda start: start.hour == hour and start.weekday() == at.astimezone(UTC).weekday()),
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
