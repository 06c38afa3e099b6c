"""Collect the facts about Waymark's own components. A component that does not answer is a fact, not an error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from redis import RedisError

from monitoring import broker
from monitoring.broker import Heartbeat
from monitoring.history_job import why_not_running
from monitoring.models import ArchivedFile, ArchivedState, Cluster, Tick
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason

_DATABASE = "SELECT clock_timestamp(), pg_database_size(current_database())"

# Every answer of the cluster lists a live run, unless the run is missing.
_OLDEST = """
SELECT job.name, cluster.name, seen.at
FROM monitoring_job job
JOIN monitoring_run run ON run.id = job.current_run_id
JOIN monitoring_cluster cluster ON cluster.id = job.cluster_id
CROSS JOIN LATERAL (
    SELECT CASE WHEN run.missing_since IS NULL
                THEN greatest(run.observed_at, cluster.last_answer_at) ELSE run.observed_at END AS at
) seen
WHERE cluster.enabled AND run.state NOT IN ('FAILED', 'CANCELED', 'FINISHED', 'LOST')
ORDER BY seen.at LIMIT 1
"""

_DELIVERIES = """
SELECT count(*) FILTER (WHERE state = 'pending'), count(*) FILTER (WHERE state = 'dead'),
       count(*) FILTER (WHERE state = 'dead' AND created_at > %s), min(created_at) FILTER (WHERE state = 'pending')
FROM monitoring_delivery WHERE state <> 'sent'
"""


_ARCHIVE = """
WITH live AS (SELECT * FROM monitoring_archivedfile WHERE state = 'live'),
days AS (
    SELECT count(DISTINCT day) FROM (SELECT DISTINCT date_trunc('day', since, 'UTC') AS first, until FROM live) files,
        generate_series(first, until - interval '1 microsecond', '24 hours') AS day
)
SELECT (SELECT * FROM days), count(*), coalesce(sum(size), 0)::bigint, (min(since) AT TIME ZONE 'UTC')::date,
    count(*) FILTER (WHERE problem <> '')
FROM live
"""


@dataclass(frozen=True)
class Database:
    """PostgreSQL. `now` is by its clock; `clock_ahead_s`: the seconds by which this machine's clock is ahead."""

    now: datetime
    latency_s: float
    size_bytes: int
    clock_ahead_s: float


@dataclass(frozen=True)
class Queue:
    """Redis: the number of waiting tasks, and the signs of life of the processes."""

    latency_s: float
    waiting: int
    heartbeats: tuple[Heartbeat, ...]

    @property
    def beats(self) -> list[Heartbeat]:
        return [heartbeat for heartbeat in self.heartbeats if heartbeat.kind == "beat"]

    @property
    def workers(self) -> list[Heartbeat]:
        return [heartbeat for heartbeat in self.heartbeats if heartbeat.kind == "worker"]


@dataclass(frozen=True)
class Unavailable:
    why: str


@dataclass(frozen=True)
class ClusterLag:
    """A polled cluster. `lag_s`: for how long its next poll is overdue, else 0."""

    name: str
    reachable: bool
    stranger: bool  # another cluster answers at the address of this one
    lag_s: float
    last_answer_at: datetime | None
    consecutive_failures: int
    poll_interval_s: float
    ended: bool = False  # with its only job, so that it does not answer


@dataclass(frozen=True)
class OldestJob:
    name: str
    cluster: str
    seen_at: datetime


@dataclass(frozen=True)
class Deliveries:
    pending: int = 0
    dead: int = 0
    dead_today: int = 0  # the number of jobs that died in the last 24 hours
    oldest_pending_at: datetime | None = None


@dataclass(frozen=True)
class Archive:
    """The history's archive. `bytes` is its size on disk.

    `unreadable`: the number of files whose last read failed. `problem`: the error of one of them.
    """

    days: int = 0
    files: int = 0
    bytes: int = 0
    since: date | None = None
    unreadable: int = 0
    problem: Reason | str = ""


@dataclass(frozen=True)
class Stored:
    """The facts that are stored in the database."""

    ticks: Mapping[str, Tick] = field(default_factory=dict)
    clusters: tuple[ClusterLag, ...] = ()  # the enabled clusters
    oldest: OldestJob | None = None
    deliveries: Deliveries = Deliveries()
    history: Reason | None = None  # why the history's pipeline is not running
    archive: Archive = Archive()


@dataclass(frozen=True)
class Facts:
    """The facts for a verdict. `periods`: the interval of each periodic task. `stored`: None without the database."""

    at: datetime
    database: Database | Unavailable
    queue: Queue | Unavailable
    periods: Mapping[str, timedelta]
    stored: Stored | None


def gather(at: datetime | None = None) -> Facts:
    """Collect the facts in a constant number of queries, plus one if a file of the archive is unreadable.

    `at` is the current time, by default the database's, because all stored times are by the database's clock.
    """
    database = _database()
    at = at or (datetime.now(UTC) if isinstance(database, Unavailable) else database.now)
    stored = None
    if isinstance(database, Database):
        try:
            stored = _stored(at)
        except DatabaseError as error:
            database = Unavailable(_line(error))
    return Facts(at, database, _queue(at), periods(), stored)


def periods() -> dict[str, timedelta]:
    """Return the intervals by the last part of the task's name, without tasks that follow a calendar."""
    schedule: Mapping[str, Mapping[str, Any]] = settings.CELERY_BEAT_SCHEDULE
    return {
        str(entry["task"]).rpartition(".")[2]: entry["schedule"]
        for entry in schedule.values()
        if isinstance(entry["schedule"], timedelta)
    }


def _database() -> Database | Unavailable:
    here, started = datetime.now(UTC), time.monotonic()
    try:
        with connection.cursor() as cursor:
            cursor.execute(_DATABASE)
            there, size = cursor.fetchone() or (here, 0)
    except DatabaseError as error:
        return Unavailable(_line(error))
    took = time.monotonic() - started
    return Database(there, took, size, (here - there).total_seconds() + took)


def _queue(at: datetime) -> Queue | Unavailable:
    started = time.monotonic()
    try:
        with broker.connect() as redis:
            waiting = broker.waiting(redis)
            took = time.monotonic() - started
            return Queue(took, waiting, tuple(broker.heartbeats(redis, at)))
    except RedisError as error:
        return Unavailable(_line(error))


def _stored(now: datetime) -> Stored:
    with connection.cursor() as cursor:
        cursor.execute(_OLDEST)
        oldest = cursor.fetchone()
        cursor.execute(_DELIVERIES, [now - timedelta(days=1)])
        deliveries = cursor.fetchone()
        cursor.execute(_ARCHIVE)
        archive = cursor.fetchone()
    return Stored(
        ticks={tick.task: tick for tick in Tick.objects.all()},
        clusters=tuple(_lag(cluster, now) for cluster in Cluster.objects.filter(enabled=True)),
        oldest=OldestJob(*oldest) if oldest else None,
        deliveries=Deliveries(*deliveries) if deliveries else Deliveries(),
        history=why_not_running(now),
        archive=_archive(*archive) if archive else Archive(),
    )


def _archive(days: int, files: int, size: int, since: date | None, unreadable: int) -> Archive:
    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE)
    file = live.exclude(problem="").order_by("path").last() if unreadable else None
    problem = ArchiveReason.FILE(path=file.path, problem=stored(file, "problem")) if file else ""
    return Archive(days, files, size, since, unreadable, problem)


def _lag(cluster: Cluster, now: datetime) -> ClusterLag:
    due = cluster.next_poll_at or cluster.created_at
    return ClusterLag(
        name=cluster.name,
        reachable=cluster.reachable,
        ended=cluster.has_ended,
        stranger=cluster.stranger is not None,
        lag_s=max(0.0, (now - due).total_seconds()),
        last_answer_at=cluster.last_answer_at,
        consecutive_failures=cluster.consecutive_failures,
        poll_interval_s=cluster.poll_interval_s,
    )


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
