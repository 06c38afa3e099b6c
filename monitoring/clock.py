"""The one clock of all workers: the database's.

Due times, leases and windows are rows that every worker reads, so they are all told by one clock. Between two looks at
it a worker counts on its own monotonic clock: its wall clock may be wrong, or jump, and nobody notices.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.db import DatabaseError, connection

LOOK_AGAIN_AFTER_S = 10.0


class DatabaseClock:
    """Shared by the threads of a process; each asks over its own connection."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._anchor: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """While the database is away, counted on from its last word; before its first, this machine's."""
        anchor, here = self._anchor, self._monotonic()
        if anchor is None or here - anchor[1] > LOOK_AGAIN_AFTER_S:
            anchor = self._look() or anchor
        if anchor is None:
            return datetime.now(UTC)
        return anchor[0] + timedelta(seconds=self._monotonic() - anchor[1])

    def _look(self) -> tuple[datetime, float] | None:
        asked = self._monotonic()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT clock_timestamp()")
                [at] = cursor.fetchone() or [None]
        except DatabaseError:
            return None
        answered = self._monotonic()
        with self._lock:
            # What the answer took to come is not known; half of it is the best guess.
            self._anchor = (at, (asked + answered) / 2)
            return self._anchor


now = DatabaseClock().now
