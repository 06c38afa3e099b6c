"""What a job's history lets expect. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

OF_THE_WEEK = "this hour of the week"


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
