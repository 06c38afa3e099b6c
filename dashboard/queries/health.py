"""The rows of the health page, from the facts of Waymark's own health."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as noop

from monitoring.broker import Heartbeat
from monitoring.history_job import NAME as PIPELINE
from monitoring.models import Tick
from monitoring.reasons.reason import Reason
from monitoring.selfwatch.own_facts import Archive, ClusterLag, Deliveries, Facts, OldestJob, Stored, Unavailable
from monitoring.selfwatch.verdict import Verdict

CLUSTERS_SHOWN = 20
_LATE_S = 10.0
# The pages' names of the periodic tasks.
_TASKS = {
    "keep_history_pipeline": noop("Keep the history job running"),
    "poll_clusters": noop("Poll clusters"),
    "watch_discoveries": noop("Find clusters"),
    "evaluate_rules": noop("Evaluate rules"),
    "deliver_notifications": noop("Deliver notifications"),
    "measure_objectives": noop("Measure objectives"),
    "advance_savepoints": noop("Process savepoints"),
    "advance_recovery": noop("Process restarts"),
    "answer_state_reads": noop("Read state of snapshots"),
    "archive_history": noop("Archive history"),
    "ping_dead_man": noop("Send heartbeat"),
    "apply_inventory": noop("Apply the inventory file"),
    "apply_job_defaults": noop("Apply default settings of jobs"),
    "keep_programs": noop("Keep copies of programs"),
    "apply_retention": noop("Apply retention"),
    "keep_partitions": noop("Maintain partitions"),
}


@dataclass(frozen=True)
class PartRow:
    """One component. `word` is its state; `tone` is good, warn, bad or calm."""

    name: str
    process: str
    tone: str
    word: str
    reported_at: datetime | None
    text: Reason | str


@dataclass(frozen=True)
class TaskRow:
    name: str
    period_s: float | None
    tick: Tick  # a Tick without times if the task has never run
    fails: bool


@dataclass(frozen=True)
class HealthPage:
    verdict: Verdict
    tone: str
    parts: list[PartRow]
    tasks: list[TaskRow]
    clusters: list[ClusterLag]  # the clusters whose polls are most overdue
    clusters_in_all: int
    worst_lag_s: float | None
    oldest: OldestJob | None
    waiting: int | None
    database_ms: float | None
    database_bytes: int | None
    deliveries: Deliveries
    archive: Archive
    archived_after: timedelta
    blind_after_s: float
    pings: bool


def read_health(facts: Facts, verdict: Verdict) -> HealthPage:
    stored = facts.stored or Stored()
    database = None if isinstance(facts.database, Unavailable) else facts.database
    clusters = sorted(stored.clusters, key=lambda cluster: cluster.lag_s, reverse=True)
    return HealthPage(
        verdict=verdict,
        tone="bad" if verdict.problems else "warn" if verdict.warnings else "good",
        parts=[*_servers(facts), *_processes(facts), *_history(facts)],
        tasks=[_task(name, period, stored) for name, period in facts.periods.items()],
        clusters=clusters[:CLUSTERS_SHOWN],
        clusters_in_all=len(clusters),
        worst_lag_s=clusters[0].lag_s if clusters else None,
        oldest=stored.oldest,
        waiting=None if isinstance(facts.queue, Unavailable) else facts.queue.waiting,
        database_ms=None if database is None else database.latency_s * 1000,
        database_bytes=None if database is None else database.size_bytes,
        deliveries=stored.deliveries,
        archive=stored.archive,
        archived_after=settings.HISTORY_KEPT,
        blind_after_s=settings.BLIND_AFTER_S,
        pings=bool(settings.DEAD_MAN_URL),
    )


def _servers(facts: Facts) -> Iterator[PartRow]:
    for name, found in (("PostgreSQL", facts.database), ("Redis", facts.queue)):
        if isinstance(found, Unavailable):
            yield PartRow(name, "", "bad", "unreachable", None, found.why)
        else:
            yield PartRow(name, "", "good", "reachable", facts.at, _latency(found.latency_s))


def _latency(seconds: float) -> str:
    return _("latency %(time)s ms") % {"time": f"{seconds * 1000:.1f}"}


def _processes(facts: Facts) -> Iterator[PartRow]:
    queue = facts.queue
    if isinstance(queue, Unavailable):
        return
    for beat in queue.beats:
        text = _("schedules the periodic tasks") if beat.facts.get("leads") else _("takes over if the leader fails")
        yield _process("Beat", beat, "leader" if beat.facts.get("leads") else "standby", facts.at, text)
    if not queue.beats:
        yield PartRow("Beat", "", "bad", "none", None, _("Start a beat: manage.py up, or celery beat."))
    for worker in queue.workers:
        text = _("%(threads)s threads, %(tasks)s tasks since the start") % {
            "threads": _number(worker.facts, "threads"),
            "tasks": _number(worker.facts, "taken"),
        }
        yield _process("Worker", worker, "running", facts.at, text)
    if not queue.workers:
        yield PartRow("Worker", "", "bad", "none", None, _("Start a worker: manage.py up, or celery worker."))


def _history(facts: Facts) -> Iterator[PartRow]:
    """Yield the row of the job that computes roll-ups, if Waymark runs the embedded job manager."""
    name = noop("History")
    if facts.stored is None or not settings.EMBEDDED_CLUSTER_URL:
        return
    if not settings.HISTORY_PIPELINE:
        text = _("WAYMARK_HISTORY_PIPELINE is off: charts of long time ranges read the checkpoints themselves.")
        yield PartRow(name, "", "calm", "off", None, text)
    elif facts.stored.history:
        yield PartRow(name, "", "warn", "not running", None, facts.stored.history)
    else:
        text = _("the job %(name)s computes roll-ups of checkpoints") % {"name": PIPELINE}
        yield PartRow(name, "", "good", "active", None, text)


def _process(kind: str, sign: Heartbeat, word: str, now: datetime, text: str) -> PartRow:
    late = now - sign.at > timedelta(seconds=_LATE_S)
    return PartRow(kind, sign.name, "bad" if late else "good", "no heartbeat" if late else word, sign.at, text)


def _number(facts: Any, name: str) -> str:
    return f"{int(facts.get(name) or 0):,}"


def _task(name: str, period: timedelta, stored: Stored) -> TaskRow:
    tick = stored.ticks.get(name) or Tick(task=name)
    fails = tick.failed_at is not None and (not tick.ended_at or tick.failed_at > tick.ended_at)
    return TaskRow(_(_TASKS.get(name, name.replace("_", " "))), period.total_seconds(), tick, fails)
