"""Celery's scheduler under a lease in Redis (decision 32).

The schedule is in the settings. Redis stores the holder of the lease and the time at which each entry was last sent, so
that the next holder continues from there. If Redis is emptied, both are written again within seconds.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from redis import Redis, RedisError

from checkpointing.clock import Clock, SystemClock
from dashboard.beat.lease import Lease
from monitoring import broker

LEASE_S = 5.0
CHECK_EVERY_S = 1.0
LEASE_KEY = "waymark:beat:lease"
SENT_KEY = "waymark:beat:sent"
# The limit of waiting tasks for each entry of the schedule: without a worker, more of them would be useless.
_WAITING_PER_ENTRY = 4

log = logging.getLogger(__name__)


class LeasedScheduler(Scheduler):  # type: ignore[misc]
    """A scheduler that sends tasks while it holds the lease, Redis answers and a worker takes the tasks.

    It checks these conditions once a second and logs each change.
    """

    def __init__(self, app: Any, *args: Any, clock: Clock | None = None, lazy: bool = False, **kwargs: Any) -> None:
        self._clock = clock or SystemClock()
        self._redis: Redis = broker.connect(app.conf.broker_url)
        self._name = broker.process_name()
        self._lease = Lease(self._redis, LEASE_KEY, f"{self._name}:{uuid.uuid4().hex}", LEASE_S, self._clock)
        self._behind = True  # another beat may have sent tasks since this one last sent any
        self._next_check = 0.0
        self._pause_reason = "it has not looked yet"
        super().__init__(app, *args, lazy=lazy, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send one due entry, and return the seconds until the next call."""
        if self._clock.monotonic() >= self._next_check:
            self._check()
        # Check the lease directly before sending, because this process may have been suspended since the last check.
        if self._pause_reason or not self._lease.is_held:
            return CHECK_EVERY_S
        self._correct_future_times()
        return min(float(super().tick(*args, **kwargs)), CHECK_EVERY_S)

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            self._pause(str(error))
            return
        with contextlib.suppress(RedisError):
            self._redis.hset(SENT_KEY, entry.name, self._now().isoformat())

    def close(self) -> None:
        with contextlib.suppress(RedisError):
            self._lease.release()
            broker.remove_heartbeat(self._redis, "beat")
        super().close()

    def _check(self) -> None:
        self._next_check = self._clock.monotonic() + CHECK_EVERY_S
        try:
            self._behind |= not self._lease.is_held
            owner = self._lease.acquire()
            if self._lease.is_held and self._behind:
                self._continue_from(self._redis.hgetall(SENT_KEY))  # type: ignore[arg-type]
                self._behind = False
            waiting = broker.waiting(self._redis)
            self._set_pause_reason(self._find_pause_reason(owner, waiting))
            broker.write_heartbeat(self._redis, "beat", leads=self._lease.is_held)
        except RedisError as error:
            self._pause(f"Redis does not answer: {error}")

    def _find_pause_reason(self, owner: str, waiting: int) -> str:
        if not self._lease.is_held:
            return f"{owner.rpartition(':')[0]} ticks, this one stands by"
        if waiting >= _WAITING_PER_ENTRY * len(self.schedule):
            return "no worker takes the ticks that wait already; none is added"
        return ""

    def _pause(self, why: str) -> None:
        self._next_check = self._clock.monotonic() + CHECK_EVERY_S
        self._set_pause_reason(why)

    def _set_pause_reason(self, reason: str) -> None:
        if reason != self._pause_reason:
            self._pause_reason = reason
            log.info("beat: %s", reason or "ticks")

    def _continue_from(self, sent: Mapping[str, str]) -> None:
        """Adopt the times at which another beat last sent the entries."""
        now = self._now()
        for name, entry in self.schedule.items():
            if name in sent:
                entry.last_run_at = min(datetime.fromisoformat(sent[name]), now)
        self._heap = None

    def _correct_future_times(self) -> None:
        """Correct the last times after the wall clock was set back, so that entries do not wait for the old time."""
        now = self._now()
        ahead = [entry for entry in self.schedule.values() if entry.last_run_at > now]
        for entry in ahead:
            entry.last_run_at = now
        if ahead:
            self._heap = None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
