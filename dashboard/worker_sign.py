"""A worker's sign of life, left from the loop that takes its ticks: where that stands still, the sign grows old."""

from __future__ import annotations

import contextlib
from typing import Any

from celery.bootsteps import StartStopStep
from redis import RedisError

from monitoring import broker


class SignOfLife(StartStopStep):  # type: ignore[misc]
    requires = ("celery.worker.components:Timer",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._redis = broker.connect()

    def start(self, worker: Any) -> None:
        self._repeated = worker.timer.call_repeatedly(broker.SIGN_EVERY_S, self._leave, (worker,))

    def stop(self, worker: Any) -> None:
        self._repeated.cancel()
        with contextlib.suppress(RedisError):
            broker.remove_sign(self._redis, "worker")

    def _leave(self, worker: Any) -> None:
        taken = sum(worker.state.total_count.values())
        with contextlib.suppress(RedisError):
            broker.leave_sign(self._redis, "worker", threads=worker.concurrency, taken=taken)
