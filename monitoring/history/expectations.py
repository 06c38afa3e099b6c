"""What a job's history lets expect. Pure data."""

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
    """The median of what the hours had, and how they scatter about it (a robust standard deviation).

    Durations in milliseconds, sizes in bytes, the interval in seconds. `basis`: which hours; `hours`: how many.
    """

    expected: float
    spread: float
    basis: Reason
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
