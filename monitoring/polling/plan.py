"""When to ask again. Pure.

The engine remembers few checkpoints (`web.checkpoints.history`, 10 by default), so a job is read often enough that at
least a third of that history must still be there. Flink caches these answers for 3 s: asking faster shows nothing new.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zlib import crc32

# Flink's default, until the cluster's own length is known.
HISTORY = 10
# For how long Flink gives the same answer, where it has not told (`web.refresh-interval`, by default 3 s), and what may
# come to it until an old answer is gone: of a job that has just ended, its last checkpoints are missing until then.
ANSWERS_KEPT = timedelta(seconds=5)
KEPT_LONGER = timedelta(milliseconds=200)
_SHARE = 3
# However rare its checkpoints are, a savepoint or a failure of a job shows up within this time and one tick.
SLOWEST_READ_S = 10.0
FASTEST_READ_S = 1.0
SLOWEST_RETRY_S = 15.0
# People watch the acknowledgements of a pending checkpoint come in. One that takes longer is looked into less often.
PENDING_YOUNG_S = 30.0
# While figures are left to be read after a first sight or an outage.
BACKLOG_TICK_S = 1.0
# A silent cluster is asked up to this share sooner, so that many that fell silent together do not stay in step.
_JITTER = 0.2


@dataclass(frozen=True)
class Rhythm:
    """Moments `every_s` apart, counted from a phase that a name decides: every worker knows them and nobody stores
    them, and the jobs of a large cluster are spread evenly over its ticks."""

    every_s: float
    phase: float

    @classmethod
    def of(cls, name: str, every_s: float) -> Rhythm:
        return cls(every_s, crc32(name.encode()) / 2**32)

    def halfway(self) -> Rhythm:
        return Rhythm(self.every_s, self.phase + 0.5)

    def beats_between(self, since: datetime, until: datetime) -> bool:
        """Whether one of its moments is after `since` and not after `until`."""
        return self._beat(since) < self._beat(until)

    def next_after(self, now: datetime) -> datetime:
        """At least half a period from `now`: the one after next when the next is nearer."""
        beat = math.floor(now.timestamp() / self.every_s - self.phase + 0.5) + 1
        return datetime.fromtimestamp((beat + self.phase) * self.every_s, UTC)

    def _beat(self, at: datetime) -> int:
        return math.floor(at.timestamp() / self.every_s - self.phase)


def read_every_s(interval_ms: float | None, poll_interval_s: float, history: int = HISTORY, *, pending: bool) -> float:
    """Seconds between two reads of a live run. `interval_ms` None: no periodic checkpoints, or not known yet.

    `pending`: a checkpoint is under way, so people watch its acknowledgements come in.
    """
    if interval_ms is None:
        return poll_interval_s if pending else max(poll_interval_s, SLOWEST_READ_S / 2)
    interval_s = interval_ms / 1000
    wanted = poll_interval_s if pending else max(poll_interval_s, min(interval_s / 2, SLOWEST_READ_S))
    return max(FASTEST_READ_S, min(wanted, interval_s * max(1, history) / _SHARE))


def shows_more(job_id: str, triggered_at: datetime, since: datetime | None, now: datetime) -> bool:
    """Whether the figures of a pending checkpoint are to be read again, last read before `since`: at first at every
    tick, then each time it has become about a tenth older. Its end is seen at every tick all the same."""
    age_s = (now - triggered_at).total_seconds()
    if since is None or age_s < PENDING_YOUNG_S:
        return True
    return Rhythm.of(job_id, 2.0 ** math.floor(math.log2(age_s / 10))).beats_between(since, now)


def tick_every_s(poll_interval_s: float, reads_every_s: Iterable[float]) -> float:
    """Seconds between two ticks of a cluster: its own interval, or shorter for a run that has to be read more often."""
    return max(FASTEST_READ_S, min(poll_interval_s, min(reads_every_s, default=poll_interval_s)))


def next_tick(rhythm: Rhythm, asked_at: datetime, now: datetime) -> datetime:
    """After a flight that began at `asked_at` and ends now. However long it took, the next tick is its neighbour: each
    that is left out is a read less of every run. Where that is over as well, nobody hurries after it."""
    planned = rhythm.next_after(min(asked_at, now))
    return planned if planned > now else rhythm.next_after(now)


def next_try(now: datetime, poll_interval_s: float, failures: int, jitter: float) -> datetime:
    """After the `failures`-th poll in a row without an answer: doubling, and never slower than every 15 s.

    `jitter` is a random number from 0 to 1.
    """
    wait = poll_interval_s * 2 ** min(failures - 1, 10)
    return now + timedelta(seconds=max(poll_interval_s, min(wait, SLOWEST_RETRY_S)) * (1 - _JITTER * jitter))
