"""Every task delivered twice at once, through a real Redis, to a worker with several threads: each acts once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import task_postrun
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from dashboard import tasks as tasks_with_forms
from monitoring import tasks
from monitoring.alerts.defaults import DEFAULTS
from monitoring.history import partitions
from monitoring.models import (
    AlertRule,
    Channel,
    Checkpoint,
    Delivery,
    DeliveryState,
    Incident,
    Objective,
    ObjectiveBudget,
    OperatorCheckpoint,
    RestartAttempt,
    Run,
    RunState,
    RunStateChange,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.polling import service
from tests.monitoring.conftest import Rows
from tests.monitoring.fake_job_manager import FakeJobManager
from tests.monitoring.locks import waiting_for_locks
from tests.monitoring.polling.conftest import FakeEngine, make_engine
from tests.monitoring.recovery.conftest import LAUNCH
from tests.waiting import eventually

__all__ = ["make_engine"]
pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
TASKS = [str(entry["task"]) for entry in settings.CELERY_BEAT_SCHEDULE.values()]
LOADED = {tasks.__name__, tasks_with_forms.__name__}
assert {name.rpartition(".")[0] for name in TASKS} == LOADED, "loaded, so that the worker knows them"


# The table in which each task claims its work.
IN_STEP = (
    ("advance_savepoints", "job"),
    ("advance_savepoints", "savepoint"),
    ("apply_retention", "savepoint"),
    ("advance_recovery", "job"),
    ("advance_recovery", "restartattempt"),
    ("evaluate_rules", "incident"),
    ("deliver_notifications", "channel"),
    ("deliver_notifications", "notification"),
    ("deliver_notifications", "delivery"),
)


class Worker:
    """A worker that receives each task several times at once, and waits until all deliveries have ended."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._ended: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, task: Any, **_: object) -> None:
        with self._lock:
            self._ended[task.name] += 1

    def deliver(self, *names: str, times: int = 2) -> None:
        self._wait(self._send(names, times))

    def deliver_in_step(self, name: str, table: str) -> None:
        """Deliver a task twice, so that both read what is due before either can write to the table.

        Therefore the test fails without the guard of the rows.
        """
        with connection.cursor() as cursor, transaction.atomic():
            cursor.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")  # reads are still possible
            wanted = self._send([name], 2)
            eventually("both wait, or had nothing to write", lambda: waiting_for_locks() + self._done(wanted) >= 2, 60)
        self._wait(wanted)

    def _send(self, names: Sequence[str], times: int) -> Counter[str]:
        with self._lock:
            wanted = Counter({name: self._ended[name] + times for name in names})
        for _ in range(times):
            for name in names:
                self._app.send_task(name)
        return wanted

    def _done(self, wanted: Counter[str]) -> int:
        """Return how many of a task's two deliveries have ended."""
        [(name, count)] = wanted.items()
        return 2 - max(0, count - self._ended[name])

    def _wait(self, wanted: Counter[str]) -> None:
        eventually("all have ended", lambda: all(self._ended[name] >= count for name, count in wanted.items()), 60)


@pytest.fixture
def worker(redis_url: str, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Worker]:
    settings.CELERY_BROKER_URL = redis_url
    polling = service.PollingThread()
    monkeypatch.setattr(service, "POLLING", polling)
    app = Celery("twice", broker=redis_url, set_as_current=False)
    app.conf.update(task_ignore_result=True, task_acks_late=True, task_default_queue="twice")
    worker = Worker(app)
    task_postrun.connect(worker.note, weak=False)
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="error"):
        yield worker
        polling.end()
        polling.join()
    task_postrun.disconnect(worker.note)


def has_work(rows: Rows, engine: FakeEngine, job_manager: FakeJobManager, hook: str) -> None:
    """Store work for every task."""
    once = {"summary_cron": "0 0 1 1 *", "next_summary_at": rows.ago(60)}
    Channel.objects.create(
        name="hook", kind="webhook", settings={"url": hook}, allow_private=True, group_wait_s=0, **once
    )
    Objective.objects.create(percent=99, limit_ms=1000, days=2)
    rows.cluster(name="polled", rest_url=engine.url, poll_interval_s=1)
    engine.job(name="watched").add(1, 2, 3)
    steered = rows.cluster(name="steered", rest_url=job_manager.url, enabled=True, next_poll_at=rows.ago(-3600))
    _dead(rows, steered, job_manager)
    _failing(rows, steered, job_manager)


def _dead(rows: Rows, cluster: Any, job_manager: FakeJobManager) -> None:
    job = rows.job(cluster, name="dead", launch=LAUNCH, auto_restart=True)
    run = rows.run(job, RunState.FAILED, final_read_done=True)
    rows.checkpoint(run, 7, external_path="file:/chk/7")
    job_manager.add(run.engine_job_id, "dead", "FAILED")


def _failing(rows: Rows, cluster: Any, job_manager: FakeJobManager) -> None:
    """Store a job with failed checkpoints, a requested savepoint, and one savepoint more than are kept."""
    job = rows.job(cluster, name="failing", savepoints_kept=1)
    run = rows.run(job)
    for number in (1, 2, 3):
        rows.failed(run, number, rows.ago(60 + number))
    for hours in (3, 2):
        path, at = f"file:/sp/{hours}", rows.ago(hours * 3600)
        times = {"requested_at": at, "completed_at": at, "next_check_at": None}
        origin, state = SavepointOrigin.SCHEDULED, SavepointState.COMPLETED
        Savepoint.objects.create(job=job, run=run, origin=origin, state=state, path=path, **times)
    by_hand = {"origin": SavepointOrigin.MANUAL, "requested_at": rows.now, "next_check_at": rows.ago(1)}
    Savepoint.objects.create(job=job, run=run, state=SavepointState.REQUESTED, **by_hand)
    job_manager.add(run.engine_job_id, "failing")


def test_every_task_delivered_twice_at_once_acts_once(
    worker: Worker, make_engine: Callable[[], FakeEngine], job_manager: FakeJobManager, httpserver: Any
) -> None:
    partitions.cover(timezone.now() - timedelta(days=1))
    httpserver.expect_request("/hook").respond_with_data("thanks")
    has_work(Rows(now=timezone.now()), make_engine(), job_manager, httpserver.url_for("/hook"))

    def done() -> bool:
        for task, table in IN_STEP:
            worker.deliver_in_step(f"monitoring.tasks.{task}", f"monitoring_{table}")
        worker.deliver(*TASKS)
        sent = Delivery.objects.filter(state=DeliveryState.SENT).exists()
        read = Checkpoint.objects.filter(run__job__name="watched", final=True).count() == 3
        return bool(job_manager.ran) and job_manager.count("trigger") > 0 and sent and read

    eventually("there was something to do for every task, and it was done", done, 90)
    worker.deliver(*TASKS, times=4)

    assert len(job_manager.ran) == 1, "one launch"
    assert [attempt.epoch for attempt in RestartAttempt.objects.all()] == [1]
    assert job_manager.count("trigger") == 1
    assert Savepoint.objects.filter(job__name="failing", requested_at__gte=_minute_ago()).count() == 1
    assert sorted(job_manager.disposed) == sorted(set(job_manager.disposed))
    assert Incident.objects.filter(job__name="failing", kind="failed_in_window").count() == 1
    kinds = list(AlertRule.objects.values_list("kind", flat=True))
    assert sorted(kinds) == sorted(DEFAULTS), "the default rules, each once"
    sent = list(Delivery.objects.prefetch_related("tries"))
    assert sent
    assert [(each.state, each.tries.count()) for each in sent] == [(DeliveryState.SENT, 1)] * len(sent)
    assert len(httpserver.log) == len(sent)
    assert Delivery.objects.filter(summary__isnull=False).count() == 1
    assert ObjectiveBudget.objects.get(job__name="failing").missed == 3
    assert Run.objects.filter(job__name="watched").count() == 1
    assert RunStateChange.objects.filter(run__job__name="watched").count() == 1
    assert OperatorCheckpoint.objects.filter(checkpoint__run__job__name="watched").count() == 6


def _minute_ago() -> datetime:
    return timezone.now() - timedelta(minutes=2)
