"""Expectations and forecasts from a job's history, as pure data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import Reason, ReasonCode


class Basis(ReasonCode):
    """The hours that an expectation is based on."""

    HOUR_OF_THE_WEEK = "history.hour-of-the-week", _("this hour of the week, the last 4 weeks")
    HOUR_OF_THE_DAY = "history.hour-of-the-day", _("this hour of the day, the last 4 weeks")
    ALL_HOURS = "history.all-hours", _("all hours, the last 4 weeks")


@dataclass(frozen=True)
class Expectation:
    """The median of some hours, and the spread of their values around it (a robust standard deviation).

    Durations in milliseconds, sizes in bytes, the interval in seconds. `basis`: which hours; `hours`: how many.
    """

    expected: float
    spread: float
    basis: Reason
    hours: int

    def deviations(self, value: float) -> float:
        """Return how many spreads `value` is above the expectation, negative below it.

        The spread counts as at least a tenth of the expectation.
        """
        return (value - self.expected) / max(self.spread, abs(self.expected) / 10, 1e-9)


@dataclass(frozen=True)
class Forecast:
    """The growth per day, from the number of `days` examined.

    `exceeds_timeout_on` is the day on which the p95 of durations will reach the checkpoint timeout at this growth.
    None: not within a year, or too little history.
    """

    state_per_day: float | None
    duration_per_day: float | None
    exceeds_timeout_on: datetime | None
    days: int
