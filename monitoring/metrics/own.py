"""Waymark's own metrics."""

from __future__ import annotations

from collections.abc import Iterator

from monitoring.metrics.families import Family, counters, gauge, gauges
from monitoring.selfwatch.own_facts import Facts, Stored, Unavailable
from monitoring.selfwatch.verdict import Verdict


def collect(facts: Facts, verdict: Verdict) -> Iterator[Family]:
    yield gauge("healthy", "1 while Waymark sees, 0 while it is blind (GET /health says why).", float(verdict.healthy))
    yield from _database(facts)
    yield from _queue(facts)
    if facts.stored is not None:
        yield from _tasks(facts.stored)
        yield from _clusters(facts.stored)
        yield from _backlog(facts, facts.stored)
        yield from _archive(facts.stored)


def _database(facts: Facts) -> Iterator[Family]:
    answers = not isinstance(facts.database, Unavailable)
    yield gauge("database_up", "1 when PostgreSQL answers.", float(answers))
    if not isinstance(facts.database, Unavailable):
        yield gauge("database_latency_seconds", "What a query takes that reads nothing.", facts.database.latency_s)
        yield gauge("database_size_bytes", "Size of the database on disk.", facts.database.size_bytes)
        yield gauge(
            "clock_ahead_seconds",
            "How far this process's clock is ahead of the database's.",
            facts.database.clock_ahead_s,
        )


def _queue(facts: Facts) -> Iterator[Family]:
    yield gauge("redis_up", "1 when Redis answers.", float(not isinstance(facts.queue, Unavailable)))
    if isinstance(facts.queue, Unavailable):
        return
    queue = facts.queue
    yield gauge("redis_latency_seconds", "What a command takes that reads nothing.", queue.latency_s)
    yield gauge("tasks_queued", "Ticks that no worker has taken yet.", queue.waiting)
    yield gauges(
        "beat_last_seen_timestamp_seconds",
        "Time of the last heartbeat of a beat.",
        ("process", "leads"),
        [((beat.name, str(bool(beat.facts.get("leads"))).lower()), beat.at.timestamp()) for beat in queue.beats],
    )
    yield gauges(
        "worker_last_seen_timestamp_seconds",
        "Time of the last heartbeat of a worker.",
        ("process",),
        [((worker.name,), worker.at.timestamp()) for worker in queue.workers],
    )


def _tasks(stored: Stored) -> Iterator[Family]:
    ticks = stored.ticks.values()
    yield gauges(
        "task_last_success_timestamp_seconds",
        "When a periodic task last came to its end.",
        ("task",),
        [((tick.task,), tick.ended_at.timestamp() if tick.ended_at else None) for tick in ticks],
    )
    yield gauges(
        "task_last_duration_seconds",
        "How long its newest run took that came to its end.",
        ("task",),
        [((tick.task,), None if tick.took_ms is None else tick.took_ms / 1000) for tick in ticks],
    )
    yield counters("task_runs", "Runs of a periodic task.", ("task",), [((t.task,), t.runs) for t in ticks])
    yield counters("task_failures", "Runs that failed.", ("task",), [((t.task,), t.failures) for t in ticks])


def _clusters(stored: Stored) -> Iterator[Family]:
    clusters, label = stored.clusters, ("cluster",)
    yield gauges(
        "cluster_reachable",
        "1 if the cluster answered the last poll.",
        label,
        [((cluster.name,), float(cluster.reachable)) for cluster in clusters],
    )
    yield gauges(
        "cluster_stranger",
        "1 while another cluster answers at its address.",
        label,
        [((cluster.name,), float(cluster.stranger)) for cluster in clusters],
    )
    yield gauges(
        "cluster_poll_lag_seconds",
        "For how long the cluster's next poll has been due.",
        label,
        [((cluster.name,), cluster.lag_s) for cluster in clusters],
    )
    yield gauges(
        "cluster_last_answer_timestamp_seconds",
        "When the cluster last answered.",
        label,
        [((c.name,), c.last_answer_at.timestamp() if c.last_answer_at else None) for c in clusters],
    )
    yield gauges(
        "cluster_consecutive_failures",
        "Polls in a row that brought nothing.",
        label,
        [((cluster.name,), cluster.consecutive_failures) for cluster in clusters],
    )


def _backlog(facts: Facts, stored: Stored) -> Iterator[Family]:
    oldest = stored.oldest
    age = None if oldest is None else (facts.at - oldest.seen_at).total_seconds()
    yield gauge("oldest_unpolled_job_seconds", "For how long the job that waits longest was not seen.", age)
    yield gauges(
        "deliveries",
        "Notifications that wait to be delivered, and those that were given up.",
        ("state",),
        [(("pending",), stored.deliveries.pending), (("dead",), stored.deliveries.dead)],
    )


def _archive(stored: Stored) -> Iterator[Family]:
    archive = stored.archive
    yield gauge("archived_days", "Days of the history that lie in the archive.", archive.days)
    yield gauge("archived_bytes", "Size of the archive's files.", archive.bytes)
    yield gauge("archived_files_unreadable", "Files of the archive that are missing or damaged.", archive.unreadable)
