"""The time from the failure of a job to RUNNING with Waymark, compared with a bare start of the engine.

It uses a real Flink (the tests' LedgerJob, whose task throws) and a real PySpark job (whose driver is killed), both
with restart strategy none. Each fails several times, at a random moment between two polls. Waymark's tasks run here at
the intervals of Celery beat, but without Celery, and recovery runs in a separate thread. A bare start is
`POST /jars/:id/run` with the same program, settings and snapshot, to an engine that Waymark does not monitor. RUNNING
means that every operator runs. An independent thread measures it in both cases.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.figures import Figure

FLINK_ROUNDS, SPARK_ROUNDS = 7, 5
POLL_S = 1.0
LIMIT_S = 180.0


class Engine(Protocol):
    """A cluster with a job named `job_name`, and the actions that make the job fail and start."""

    name: str
    url: str
    job_name: str
    launch: Mapping[str, Any]  # the launch record of the job; empty if the engine reports it

    def kill(self) -> None:
        """Make the job fail so that the engine does not restart it."""
        ...

    def repair(self) -> None:
        """Remove the cause of the failure, so that the next start succeeds."""
        ...

    def start_bare(self, job_id: str, state: str) -> None:
        """Start the same program with the same settings from the snapshot `state`, under another name."""
        ...

    def stop_bare(self, job_id: str) -> None: ...

    def get(self, path: str) -> Any: ...


@dataclass
class Times:
    """The measured seconds, with one value for each round."""

    seen: list[float] = field(default_factory=list)  # from the failure, by the engine's clock, until a poll read it
    decided: list[float] = field(default_factory=list)  # from the failure until the decision to restart
    started: list[float] = field(default_factory=list)  # from the decision until every operator runs
    bare: list[float] = field(default_factory=list)


def measure() -> list[Figure]:
    from bench.rules import prepared
    from dashboard.stack.postgres import PostgresServer
    from dashboard.stack.process import running

    with tempfile.TemporaryDirectory(prefix="waymark-recovery-", dir="/tmp", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o711)
        server = PostgresServer(directory / "pg")
        with running(server, log=directory / "postgres.log"):
            prepared(server.dsn())
            return [*_flink(directory / "flink"), *_spark(directory / "spark")]


def _flink(directory: Path) -> list[Figure]:
    """Measure Flink. Polls ignore responses from before the failure, which Flink caches for a while."""
    from bench.recovery_engines import flink
    from monitoring.engine.answers import DEFAULT_KEPT_S
    from monitoring.polling.plan import KEPT_LONGER

    with flink(directory) as engine:
        kept_s = DEFAULT_KEPT_S + KEPT_LONGER.total_seconds()
        return _figures("Flink", _rounds(engine, FLINK_ROUNDS), kept_s)


def _spark(directory: Path) -> list[Figure]:
    from bench.recovery_engines import pyspark

    with pyspark(directory) as engine:
        return _figures("PySpark", _rounds(engine, SPARK_ROUNDS), kept_s=0.0)


def _figures(engine: str, times: Times, kept_s: float) -> list[Figure]:
    from monitoring.recovery.detection import HOLD_DOWN

    hold_s = max(HOLD_DOWN.total_seconds(), kept_s)
    started, bare = statistics.median(times.started), statistics.median(times.bare)
    return [
        Figure("death to read", statistics.median(times.seen), "s", POLL_S + 1, case=engine),
        Figure("death to decision", statistics.median(times.decided), "s", POLL_S + hold_s, case=engine),
        Figure("death to decision, longest", max(times.decided), "s", case=engine),
        Figure("decision to RUNNING", started, "s", case=engine),
        Figure("bare start to RUNNING", bare, "s", case=engine),
        Figure("start against a bare one", started / bare, "×", 1.1, case=engine),
        Figure("death to RUNNING", _median_sum(times), "s", case=engine),
    ]


def _median_sum(times: Times) -> float:
    return statistics.median(map(sum, zip(times.decided, times.started, strict=True)))


def _rounds(engine: Engine, rounds: int) -> Times:
    from django.utils import timezone

    from monitoring.launches import remember_edit
    from monitoring.models import Job

    times = Times()
    with _waymark(engine) as until:
        job = until("the job is seen", lambda: Job.objects.filter(name=engine.job_name).first())
        Job.objects.filter(pk=job.pk).update(auto_restart=True, max_restarts_per_hour=99, max_restarts_per_day=99)
        if engine.launch:
            remember_edit(job, engine.launch, "bench", timezone.now())
        for _ in range(rounds):
            _one_round(engine, job, times, until)
            print(f"{engine.name}: {times}", file=sys.stderr)
    return times


def _one_round(engine: Engine, job: Any, times: Times, until: Callable[..., Any]) -> None:
    from django.utils import timezone

    from monitoring.models import Job, RestartAttempt

    job.refresh_from_db()
    run = job.current_run
    until("two of its checkpoints are known", lambda: run.checkpoints.filter(status="COMPLETED").count() >= 2)
    # Reset the restart budget, so that there is no backoff between the rounds.
    Job.objects.filter(pk=job.pk).update(budget_since=timezone.now())
    _poll_for(random.uniform(0, POLL_S), until)
    engine.kill()
    until("it is dead", lambda: _has_ended(engine))
    engine.repair()
    attempt = until("a restart is decided", lambda: RestartAttempt.objects.filter(job=job, old_run=run).first())
    watch = _Watch(engine, attempt.engine_job_id)
    until("it has ended", lambda: RestartAttempt.objects.filter(pk=attempt.pk, ended_at__isnull=False).exists())
    attempt.refresh_from_db()
    run.refresh_from_db()
    assert attempt.state == "succeeded", attempt.error
    died = run.ended_at
    times.seen.append((run.end_seen_at - died).total_seconds())
    times.decided.append((attempt.created_at - died).total_seconds())
    times.started.append(watch.running_at() - attempt.created_at.timestamp())
    bare_id = uuid.uuid4().hex
    began = time.time()
    watch = _Watch(engine, bare_id)
    engine.start_bare(bare_id, attempt.restore_path)
    times.bare.append(watch.running_at() - began)
    engine.stop_bare(bare_id)


def _poll_for(seconds: float, until: Callable[..., Any]) -> None:
    """Wait while polls continue. A failure right after a poll would always wait for a whole poll interval."""
    over = time.monotonic() + seconds
    until(f"{seconds:g} s pass", lambda: time.monotonic() >= over)


def _has_ended(engine: Engine) -> bool:
    runs = [job for job in engine.get("/jobs/overview")["jobs"] if job["name"] == engine.job_name]
    return all(job["state"] in ("FAILED", "CANCELED", "FINISHED") for job in runs)


class _Watch:
    """A thread that waits until every operator of a job runs."""

    def __init__(self, engine: Engine, job_id: str) -> None:
        self._engine, self._job_id, self._at = engine, job_id, 0.0
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def running_at(self) -> float:
        """Return the time at which every operator ran, in epoch seconds."""
        self._thread.join()
        if not self._at:
            raise TimeoutError(f"{self._job_id} did not run within {LIMIT_S:g} s")
        return self._at

    def _wait(self) -> None:
        over = time.monotonic() + LIMIT_S
        while time.monotonic() < over and not self._at:
            if self._runs():
                self._at = time.time()
            time.sleep(0.02)

    def _runs(self) -> bool:
        try:
            job = self._engine.get(f"/jobs/{self._job_id}")
        except (OSError, LookupError):
            return False
        states = [vertex.get("status") for vertex in job["vertices"]]
        return job["state"] == "RUNNING" and all(state in ("RUNNING", "FINISHED", None) for state in states)


@contextmanager
def _waymark(engine: Engine) -> Iterator[Callable[..., Any]]:
    """Poll and recover as a worker does. Yield a function that waits for a condition meanwhile."""
    from django.utils import timezone

    from monitoring.models import Cluster
    from monitoring.polling.poller import Poller

    Cluster.objects.create(name=engine.name, rest_url=engine.url, poll_interval_s=POLL_S)
    with Poller(timezone.now) as poller, _recovering():

        def until(what: str, condition: Callable[[], Any]) -> Any:
            over = time.monotonic() + LIMIT_S
            while not (found := condition()):
                if time.monotonic() > over:
                    raise TimeoutError(f"not within {LIMIT_S:g} s: {what}")
                poller.start_due()
                poller.serve(0.1)
            return found

        yield until


@contextmanager
def _recovering() -> Iterator[None]:
    """Run a tick of recovery at the interval of Celery beat. A tick waits until the previous one has ended."""
    from django.conf import settings
    from django.db import connection
    from django.utils import timezone

    from monitoring.recovery.planned import tick

    ended, every = threading.Event(), settings.RECOVERY_EVERY

    def beat() -> None:
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            due = max(due + every.total_seconds(), time.monotonic())
            tick(timezone.now, every)
        connection.close()

    thread = threading.Thread(target=beat, name="recovery", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(LIMIT_S)
