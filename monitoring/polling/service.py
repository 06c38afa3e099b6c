"""Runs one poller per process in a separate thread, as long as Celery's ticks continue.

A tick returns at once, so a slow engine never blocks a worker's thread. Each tick keeps the poller running for
`CONTINUES_FOR_S`. So polling survives a shorter loss of Redis or beat, and ends by itself without ticks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from monitoring import clock
from monitoring.polling.claim import LEASE
from monitoring.polling.poller import Poller
from monitoring.reasons.report import CycleReport
from monitoring.selfwatch.ticks import database_away

CONTINUES_FOR_S = 300.0
SERVE_LIMIT_S = 0.25
_RENEW_EVERY_S = LEASE.total_seconds() / 3
_DATABASE_RETRY_S = 2.0


class PollingThread:
    """The thread of the poller. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._until = 0.0
        self._ended = threading.Event()

    def keep_going(self, log_report: Callable[[CycleReport], None]) -> None:
        """Start the poller or keep it running for CONTINUES_FOR_S. `log_report` gets the reports of changes."""
        with self._lock:
            self._until = time.monotonic() + CONTINUES_FOR_S
            if not self._ended.is_set() and not self.alive:
                self._thread = threading.Thread(target=self._run, args=(log_report,), name="poller", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """End the poller permanently: flights in progress are given back soon, and no new ones start."""
        self._ended.set()

    def join(self, limit_s: float = 10.0) -> None:
        if self._thread is not None:
            self._thread.join(limit_s)

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _wanted(self) -> bool:
        return not self._ended.is_set() and time.monotonic() < self._until

    def _run(self, log_report: Callable[[CycleReport], None]) -> None:
        try:
            while self._wanted():
                try:
                    self._poll(log_report)
                except (DatabaseError, InterfaceError) as error:
                    # Claims expire by themselves, and the next poll reads the lost answers again.
                    database_away(error)
                    close_old_connections()
                    self._ended.wait(_DATABASE_RETRY_S)
        finally:
            connection.close()

    def _poll(self, log_report: Callable[[CycleReport], None]) -> None:
        with Poller(clock.now) as poller:
            prolonged_at = time.monotonic()
            while self._wanted():
                close_old_connections()
                poller.start_due()
                if time.monotonic() - prolonged_at > _RENEW_EVERY_S:
                    poller.renew_claims()
                    prolonged_at = time.monotonic()
                looked_at = time.monotonic()
                while (left_s := SERVE_LIMIT_S - (time.monotonic() - looked_at)) > 0 and not self._ended.is_set():
                    for change in poller.serve(left_s):
                        log_report(CycleReport((change,)))


POLLING = PollingThread()
