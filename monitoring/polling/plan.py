"""Decide when to poll again. Pure functions.

The engine remembers few checkpoints (`web.checkpoints.history`, 10 by default), so a job is read at least once per
third of that history. Flink caches these answers for 3 s: more frequent requests show nothing new.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zlib import crc32

# Flink's default length of the history, until the cluster's own is known.
HISTORY = 10
# How long Flink gives the same answer if its `web.refresh-interval` (by default 3 s) is not known, and a margin until
# an old answer is gone. Until then, the last checkpoints of a job that has just ended may be missing.
ANSWERS_KEPT = timedelta(seconds=5)
KEPT_LONGER = timedelta(milliseconds=200)
_SHARE = 3
# Even with rare checkpoints, a savepoint or a failure of a job is seen within this time and one tick.
SLOWEST_READ_S = 10.0
FASTEST_READ_S = 1.0
SLOWEST_RETRY_S = 15.0
# People watch the acknowledgements of a pending checkpoint. After this time, it is read less often.
PENDING_YOUNG_S = 30.0
# The tick while there is a backlog of figures after the first poll or an outage.
BACKLOG_TICK_S = 1.0
# The first polls of a silent cluster each read its History Server, the later ones about once per ARCHIVES_EVERY_S.
FIRST_ARCHIVE_READS = 20
ARCHIVES_EVERY_S = 60.0
# A silent cluster is polled up to this share earlier, so that clusters that became silent together spread out.
_JITTER = 0.2


@dataclass(frozen=True)
class PollSchedule:
    """The times at which a job is polled: every `every_s` seconds, from an offset that is derived from a name.

    Every worker computes the same times, so they need not be stored. The offsets spread the jobs of a large cluster
    evenly over its ticks.
    """

    every_s: float
    phase: float

    @classmethod
    def of(cls, name: str, every_s: float) -> PollSchedule:
        return cls(every_s, crc32(name.encode()) / 2**32)

    def halfway(self) -> PollSchedule:
        return PollSchedule(self.every_s, self.phase + 0.5)

    def polls_between(self, since: datetime, until: datetime) -> bool:
        """Return whether a poll is due after `since` and not after `until`."""
        return self._poll_time(since) < self._poll_time(until)

    def next_after(self, now: datetime) -> datetime:
        """Return the first moment that is at least half a period after `now`."""
        beat = math.floor(now.timestamp() / self.every_s - self.phase + 0.5) + 1
        return datetime.fromtimestamp((beat + self.phase) * self.every_s, UTC)

    def _poll_time(self, at: datetime) -> int:
        return math.floor(at.timestamp() / self.every_s - self.phase)


def read_every_s(interval_ms: float | None, poll_interval_s: float, history: int = HISTORY, *, pending: bool) -> float:
    """Return the seconds between two reads of a live run.

    `interval_ms` None: no periodic checkpoints, or not known yet.

    `pending`: a checkpoint is in progress, so people may watch its acknowledgements.
    """
    if interval_ms is None:
        return poll_interval_s if pending else max(poll_interval_s, SLOWEST_READ_S / 2)
    interval_s = interval_ms / 1000
    wanted = poll_interval_s if pending else max(poll_interval_s, min(interval_s / 2, SLOWEST_READ_S))
    return max(FASTEST_READ_S, min(wanted, interval_s * max(1, history) / _SHARE))


def shows_more(job_id: str, triggered_at: datetime, since: datetime | None, now: datetime) -> bool:
    """Return whether the figures of a pending checkpoint must be read again, after a read at `since`.

    They are read at every tick at first, later each time the checkpoint is about a tenth older. Every tick sees its
    end.
    """
    age_s = (now - triggered_at).total_seconds()
    if since is None or age_s < PENDING_YOUNG_S:
        return True
    return PollSchedule.of(job_id, 2.0 ** math.floor(math.log2(age_s / 10))).polls_between(since, now)


def tick_every_s(poll_interval_s: float, reads_every_s: Iterable[float]) -> float:
    """Return the seconds between two ticks of a cluster: its interval, or less if a run must be read more often."""
    return max(FASTEST_READ_S, min(poll_interval_s, min(reads_every_s, default=poll_interval_s)))


def next_tick(schedule: PollSchedule, polled_at: datetime, now: datetime) -> datetime:
    """Return the next tick after a poll that began at `polled_at` and ends now.

    It is the tick directly after `polled_at`, however long the poll took, because each skipped tick is one read less of
    every run. If that tick is already over, it is the next one after now.
    """
    planned = schedule.next_after(min(polled_at, now))
    return planned if planned > now else schedule.next_after(now)


def next_try(now: datetime, poll_interval_s: float, failures: int, jitter: float) -> datetime:
    """Return the time of the next poll after `failures` polls in a row without an answer.

    Waits double up to 15 s, or to the poll interval if that is longer.

    `jitter` is a random number from 0 to 1.
    """
    wait = poll_interval_s * 2 ** min(failures - 1, 10)
    return now + timedelta(seconds=max(poll_interval_s, min(wait, SLOWEST_RETRY_S)) * (1 - _JITTER * jitter))


def reads_archives(poll_interval_s: float, failures: int) -> bool:
    """Return whether the poll after `failures` polls in a row without an answer also reads the History Server."""
    wait = max(poll_interval_s, SLOWEST_RETRY_S)
    return failures < FIRST_ARCHIVE_READS or failures % max(1, round(ARCHIVES_EVERY_S / wait)) == 0
