"""A worker process for tests: a thread that starts the rounds of due sources."""

from __future__ import annotations

import threading

from django.db import connection

from monitoring.discovery.rounds import Rounds


class Worker:
    """A process with its own rounds, which ticks until it is ended."""

    def __init__(self, errors: list[Exception], lasts_s: float = 1.0) -> None:
        self._rounds = Rounds(lasts_s)
        self._over = threading.Event()
        self._errors = errors
        self._thread = threading.Thread(target=self._tick)
        self._thread.start()

    def _tick(self) -> None:
        while not self._over.wait(0.05):
            self._rounds.start_due(lambda report: None, lambda name, error: self._errors.append(error))
        self._rounds.end()
        self._rounds.join()
        connection.close()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
