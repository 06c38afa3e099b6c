"""When a message that was not delivered is tried again, and when it is given up. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 3600.0
# With these waits the last try comes about 85 minutes after the first: a channel may be down for an hour.
MAX_TRIES = 10


def next_wait(tries: int, retry_after_s: float | None, random: Callable[[], float]) -> timedelta | None:
    """The wait after the `tries`-th failed try, None: give up.

    Doubles each time, ±20 % so that many messages do not come back in step; never sooner than the receiver asked.
    """
    if tries >= MAX_TRIES:
        return None
    wait = min(FIRST_WAIT_S * 2 ** (tries - 1), LONGEST_WAIT_S) * (0.8 + 0.4 * random())
    return timedelta(seconds=max(wait, min(retry_after_s or 0.0, LONGEST_WAIT_S)))


def seconds_to_wait(header: str, now: datetime) -> float | None:
    """Read a Retry-After header (RFC 9110): seconds or an HTTP date. None when it cannot be read."""
    value = header.strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds()) if value else None
    except (ValueError, TypeError):
        return None
