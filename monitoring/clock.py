"""The clock of all workers: the database's clock.

Every worker reads due times, leases and windows from rows, so all workers need the same clock. Between two queries of
the database's clock, a worker uses its monotonic clock. So it does not matter if its wall clock is wrong or jumps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django.db import DatabaseError, connection

LOOK_AGAIN_AFTER_S = 10.0


class DatabaseClock:
    """The database's clock, shared by the threads of a process. Each thread queries it over its own connection."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._anchor: tuple[datetime, float] | None = None

    def now(self) -> datetime:
        """Return the database's time.

        Without the database, continue from its last answer, or use this machine's clock.
        """
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
            # The delay of the answer is not known. Half of the whole time is the best estimate.
            self._anchor = (at, (asked + answered) / 2)
            return self._anchor


now = DatabaseClock().now
