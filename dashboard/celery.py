"""The Celery application. All state is in PostgreSQL, so a lost task causes only a delay."""

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


def prevent_logging_setup(**_: Any) -> None:
    """Do nothing. As a receiver of `setup_logging`, it stops Celery from replacing the logging of the settings."""


class WorkerHeartbeat(StartStopStep):  # type: ignore[misc]
    """A worker's heartbeat in Redis, sent by the loop that receives tasks. If the loop hangs, the heartbeat stops."""

    requires = ("celery.worker.components:Timer",)

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        self._redis = broker.connect()

    def start(self, worker: Any) -> None:
        self._repeated = worker.timer.call_repeatedly(broker.HEARTBEAT_EVERY_S, self._write_heartbeat, (worker,))

    def stop(self, worker: Any) -> None:
        self._repeated.cancel()
        with contextlib.suppress(RedisError):
            broker.remove_heartbeat(self._redis, "worker")

    def _write_heartbeat(self, worker: Any) -> None:
        taken = sum(worker.state.total_count.values())
        with contextlib.suppress(RedisError):
            broker.write_heartbeat(self._redis, "worker", threads=worker.concurrency, taken=taken)


setup_logging.connect(prevent_logging_setup)
app = Celery("waymark")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["monitoring", "dashboard"])
app.steps["worker"].add(WorkerHeartbeat)
