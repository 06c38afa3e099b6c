"""When to ask again. Pure.

The engine remembers few checkpoints (`web.checkpoints.history`, 10 by default), so a job is read again while at least
two thirds of that history must still be there. Flink caches these answers for 3 s: asking faster shows nothing new.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

HISTORY = 10
_SHARE = 3
# However rare its checkpoints are, a savepoint or a failure of a job shows up within this time.
SLOWEST_READ_S = 15.0
FASTEST_READ_S = 1.0
SLOWEST_RETRY_S = 15.0


def read_every_s(interval_ms: int | None, poll_interval_s: float, *, pending: bool) -> float:
    """Seconds until a live run is read again. `interval_ms` None: no periodic checkpoints, or not known yet.

    `pending`: a checkpoint is under way, so people watch its acknowledgements come in.
    """
    if interval_ms is None:
        return poll_interval_s if pending else max(poll_interval_s, SLOWEST_READ_S / 3)
    interval_s = interval_ms / 1000
    wanted = poll_interval_s if pending else max(poll_interval_s, min(interval_s / 2, SLOWEST_READ_S))
    return max(FASTEST_READ_S, min(wanted, interval_s * HISTORY / _SHARE))


def next_poll(now: datetime, poll_interval_s: float, reads: Iterable[datetime | None]) -> datetime:
    """The cluster's next tick: its own interval, or sooner when one of its runs is due sooner."""
    usual = now + timedelta(seconds=poll_interval_s)
    soonest = min((read for read in reads if read is not None), default=usual)
    return max(now + timedelta(seconds=FASTEST_READ_S), min(usual, soonest))


def next_try(now: datetime, poll_interval_s: float, failures: int) -> datetime:
    """After the `failures`-th poll in a row without an answer: doubling, and never slower than every 15 s."""
    wait = poll_interval_s * 2 ** min(failures - 1, 10)
    return now + timedelta(seconds=max(poll_interval_s, min(wait, SLOWEST_RETRY_S)))
