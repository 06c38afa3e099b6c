"""When a job is to be saved: every so often, or at the times of a cron expression in a time zone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason

SHORTEST_S = 30
LONGEST_S = 30 * 86_400
_FIELDS = "minute hour day-of-month month day-of-week"
# Jobs of one interval drift apart by up to this share of it.
_DRIFT = 0.05


class BadSchedule(ValueError):
    """A schedule that cannot be kept: which field, what it is, what is allowed."""

    def __init__(self, field: str, value: object, reason: Reason) -> None:
        super().__init__(f"{field} is {value!r}: {reason}.")
        self.field = field
        self.reason = reason


class Timetable(Protocol):
    def after(self, now: datetime, key: int, jitter: timedelta) -> datetime:
        """The next due time of the job with this `key`: the same every time, and another for another job."""
        ...

    @property
    def reason(self) -> Reason:
        """What follows "savepoints": "every 1 h", "at 03:00 every day (Europe/Berlin)". `str` is its English text."""
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
    """Five fields as Debian's cron reads them, also at the change to and from summer time."""

    expression: str
    zone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError) as error:
            raise BadSchedule("savepoint_time_zone", self.zone, SavepointReason.ZONE_NEEDED()) from error
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


def _share(key: int) -> float:
    """From 0 up to 1, spread evenly over neighbouring keys."""
    return (key * 2_654_435_761 % 1000) / 1000
