"""A Celery worker with Waymark's settings survives when its Redis server is killed during a task.

The worker once ended in this order of events: its task connection waited for the next message, with unacknowledged
messages, and another connection was the first to fail.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.worker import WorkController
from celery.worker.request import Request
from redis.exceptions import ConnectionError as ConnectionLost

from dashboard.logs import drop_lost_redis_traceback
from dashboard.stack.ports import any_free
from dashboard.stack.redis import RedisServer
from tests.monitoring.faults.machine import ServerProcess
from tests.waiting import eventually

LIMIT_S = 60
pytestmark = [
    pytest.mark.server,
    # Celery's warning about a setting that is intended.
    pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning"),
]


@pytest.fixture
def server(tmp_path: Path) -> RedisServer:
    return RedisServer(tmp_path / "redis", any_free())


@pytest.fixture
def redis(server: RedisServer, tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(server, tmp_path / "redis.log")
    process.start()
    yield process
    process.kill()


@pytest.fixture
def app(server: RedisServer, redis: ServerProcess) -> Celery:
    app = Celery("lost", set_as_current=False, fixups=())
    app.config_from_object("django.conf:settings", namespace="CELERY")
    app.conf.broker_url = server.url
    app.task(tick, name="tick", shared=False)
    return app


def tick() -> None:
    """Do nothing. The test needs only that the worker receives the task's message."""


class Worker:
    """A worker with the test's actions while it is connected, and Celery's code for the loss of Redis."""

    def __init__(self, app: Celery, redis: ServerProcess) -> None:
        options = {"without_gossip": True, "without_mingle": True}  # as composition.py starts it
        self._worker = WorkController(app=app, pool="threads", concurrency=4, **options)
        self._redis = redis
        self.in_hand: list[Request] = []
        self._lives = iter((self._loses_redis, self._ends_its_task))
        consumer = self._worker.consumer
        consumer.on_task_request = self.in_hand.append
        consumer.loop = lambda *given: next(self._lives)(*given)
        self._lost, consumer.on_close = consumer.on_close, self._on_lost

    def run(self) -> int:
        self._worker.start()
        return int(self._worker.exitcode)

    def _loses_redis(self, consumer: Any, connection: Any, tasks: Any, _steps: Any, hub: Any, *_: object) -> None:
        tasks.on_message = consumer.create_task_handler()
        consumer.register_with_event_loop(hub)
        tasks.consume()
        _turn(hub, lambda: bool(self.in_hand and connection.default_channel._in_poll))
        self._redis.kill()
        hub.reset()
        raise ConnectionLost("says another connection")

    def _on_lost(self) -> None:
        self._redis.start()
        self._lost()

    def _ends_its_task(self, _consumer: Any, _connection: Any, _tasks: Any, _steps: Any, hub: Any, *_: object) -> None:
        for request in self.in_hand:
            request.acknowledge()
        _turn(hub, lambda: not hub._ready)
        raise WorkerShutdown(0)


def _turn(hub: Any, until: Callable[[], bool]) -> None:
    over = time.monotonic() + LIMIT_S
    while not until():
        assert time.monotonic() < over
        hub.run_once()


def _close_connections(message: Any) -> None:
    """Close the connections that Celery opens to acknowledge or restore a message after the loss of Redis.

    Celery leaves them to the garbage collector. If a socket is freed before its connection, Python warns.
    """
    message.channel.pool.disconnect()


def test_worker_continues_after_losing_redis_during_a_task(app: Celery, redis: ServerProcess) -> None:
    app.send_task("tick")
    worker = Worker(app, redis)
    assert worker.run() == 0
    assert len(worker.in_hand) == 1
    _close_connections(worker.in_hand[0].message)


def test_lost_acknowledgement_is_logged_in_one_line(app: Celery, redis: ServerProcess) -> None:
    app.send_task("tick")
    log = logging.getLogger("celery.worker.request")
    handler = logging.StreamHandler(text := io.StringIO())
    handler.addFilter(drop_lost_redis_traceback)
    log.addHandler(handler)
    try:
        with app.connection_for_read() as connection:
            message = eventually("the message comes", connection.SimpleQueue("celery").queue.get)
            redis.kill()
            message.ack_log_error(log, (ConnectionLost,))
            redis.start()
        _close_connections(message)
    finally:
        log.removeHandler(handler)
    [line] = text.getvalue().splitlines()
    assert line.startswith("Couldn't ack")
