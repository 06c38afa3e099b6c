"""The Celery application. Tasks guard nothing: rows in PostgreSQL hold the truth, so a lost task is only late."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from celery import Celery
from celery.bootsteps import StartStopStep
from celery.signals import setup_logging
from redis import RedisError

from monitoring import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")


def keep_logging(**_: Any) -> None:
    """Celery would set the root's level to its own --loglevel; the settings have said how we log."""


class SignOfLife(StartStopStep):  # type: ignore[misc]
    """A worker's sign of life, left from the loop that takes its ticks: where that stands still, the sign grows old."""

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


setup_logging.connect(keep_logging)
app = Celery("waymark")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["monitoring"])
app.steps["worker"].add(SignOfLife)
