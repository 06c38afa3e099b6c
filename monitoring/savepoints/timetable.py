"""Schedules of savepoints: an interval, or times of a cron expression, with or without quiet hours. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cached_property
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason

SHORTEST_S = 30
LONGEST_S = 30 * 86_400
_FIELDS = "minute hour day-of-month month day-of-week"
# The interval of each job is longer by up to this share, so that jobs with the same interval drift apart.
_DRIFT = 0.05


class BadSchedule(ValueError):
    """Raised for an invalid schedule. The message has the field, its value and what is allowed."""

    def __init__(self, field: str, value: object, reason: Reason) -> None:
        super().__init__(f"{field} is {value!r}: {reason}.")
        self.field = field
        self.reason = reason


class Timetable(Protocol):
    def after(self, now: datetime, key: int, jitter: timedelta) -> datetime:
        """Return the next due time of the job with this `key`. The key gives each job a constant delay."""
        ...

    @property
    def reason(self) -> Reason:
        """Return the text after "savepoints", such as "every 1 h". `str` of the timetable is the English text."""
        ...


@dataclass(frozen=True)
class Every:
    seconds: int

    def __post_init__(self) -> None:
        whole = isinstance(self.seconds, int) and not isinstance(self.seconds, bool)
        if not whole or not SHORTEST_S <= self.seconds <= LONGEST_S:
            allowed = SavepointReason.SECONDS_NEEDED(least=SHORTEST_S, most=LONGEST_S)
            raise BadSchedule("savepoint_interval_s", self.seconds, allowed)

    def after(self, now: datetime, key: int, jitter: timedelta) -> datetime:
        return now + timedelta(seconds=self.seconds) * (1 + _share(key) * _DRIFT)

    @property
    def reason(self) -> Reason:
        return SavepointReason.EVERY(length=self.seconds)

    def __str__(self) -> str:
        return str(self.reason)


@dataclass(frozen=True)
class Cron:
    """A cron expression of five fields. It behaves like Debian's cron, also when summer time begins and ends."""

    expression: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        _zone_info(self.zone)
        self._check()

    def after(self, now: datetime, key: int, jitter: timedelta) -> datetime:
        shift = jitter * _share(key)
        return next(self._from(now - shift)).astimezone(UTC) + shift

    @property
    def reason(self) -> Reason:
        return SavepointReason.CRON(expression=self.expression, zone=self.zone)

    def __str__(self) -> str:
        return str(self.reason)

    def _check(self) -> None:
        if len(self.expression.split()) != 5:
            raise BadSchedule("savepoint_cron", self.expression, SavepointReason.FIELDS_NEEDED(fields=_FIELDS))
        try:
            times = self._from(datetime.now(UTC))
            next(times)
        except CronSimError as error:
            raise BadSchedule("savepoint_cron", self.expression, SavepointReason.BAD_CRON(error=str(error))) from error
        except StopIteration as error:
            raise BadSchedule("savepoint_cron", self.expression, SavepointReason.NO_SUCH_DAY()) from error

    def _from(self, now: datetime) -> CronSim:
        return CronSim(self.expression, now.astimezone(self._zone))

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)


_HOURS = re.compile(r"\s*([01]?\d|2[0-3]):([0-5]\d)\s*[-–]\s*([01]?\d|2[0-3]):([0-5]\d)\s*")


@dataclass(frozen=True)
class Quiet:
    """Hours of each day, such as 22:00-06:00, in a time zone."""

    start: time
    end: time
    zone: str = "UTC"

    @classmethod
    def parse(cls, text: str, zone: str) -> Quiet:
        """Return the hours in `text`. Raises BadSchedule."""
        _zone_info(zone)
        found = _HOURS.fullmatch(text)
        if found is None or found.group(1, 2) == found.group(3, 4):
            raise BadSchedule("savepoint_quiet", text, SavepointReason.HOURS_NEEDED())
        hour, minute, end_hour, end_minute = map(int, found.groups())
        return cls(time(hour, minute), time(end_hour, end_minute), zone)

    def over_at(self, at: datetime) -> datetime | None:
        """Return when the quiet hours around `at` are over, or None if `at` is not in quiet hours."""
        local = at.astimezone(ZoneInfo(self.zone))
        clock, over_midnight = local.time(), self.start > self.end
        if not (clock >= self.start or clock < self.end if over_midnight else self.start <= clock < self.end):
            return None
        day = local.date() + timedelta(days=1 if over_midnight and clock >= self.start else 0)
        end = datetime.combine(day, self.end, local.tzinfo).replace(fold=local.fold)
        return max(end.astimezone(UTC), at)

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"


@dataclass(frozen=True)
class Quieted:
    """A schedule without savepoints in quiet hours. One that is due then is due at their end."""

    inner: Every | Cron
    quiet: Quiet

    def after(self, now: datetime, key: int, jitter: timedelta) -> datetime:
        due = self.inner.after(now, key, jitter)
        return self.over_at(due, key, jitter) or due

    def over_at(self, at: datetime, key: int, jitter: timedelta) -> datetime | None:
        """Return when the job is due after the quiet hours around `at`, or None if `at` is not in quiet hours."""
        over = self.quiet.over_at(at)
        return None if over is None else over + jitter * _share(key)

    @property
    def reason(self) -> Reason:
        start, end = str(self.quiet).split("-")
        return SavepointReason.QUIETED(schedule=self.inner.reason, start=start, end=end, zone=self.quiet.zone)

    def __str__(self) -> str:
        return str(self.reason)


def _zone_info(zone: str) -> ZoneInfo:
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise BadSchedule("savepoint_time_zone", zone, SavepointReason.ZONE_NEEDED()) from error


def _share(key: int) -> float:
    """Return a number from 0 to below 1. Consecutive keys are spread evenly."""
    return (key * 2_654_435_761 % 1000) / 1000
