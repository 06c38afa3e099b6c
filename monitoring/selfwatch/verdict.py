"""Decide from the facts whether Waymark can monitor. A pure function, so endpoint, page, ping and metric agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeGuard

from monitoring.models import Tick
from monitoring.reasons import columns
from monitoring.reasons.health import HealthReason, TaskName
from monitoring.reasons.reason import Reason
from monitoring.selfwatch.own_facts import ClusterLag, Facts, Queue, Stored, Unavailable

# A process renews its sign of life every second or two.
_SILENT_AFTER = timedelta(seconds=15)
_WATCHING_PERIOD = timedelta(seconds=10)
_CLOCKS_APART_S = 30.0
_UNDELIVERED_AFTER = timedelta(minutes=10)


@dataclass(frozen=True)
class Finding:
    """A problem or warning. `part` names the component.

    Values: "database", "redis", "beat", "worker", a task, "clusters", "clocks", "notifications", "history", "archive".
    """

    part: str
    reason: Reason


@dataclass(frozen=True)
class Verdict:
    """The result. With `problems` Waymark may miss an event and notify nobody; `warnings` are less urgent."""

    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return not self.problems

    @property
    def reason(self) -> Reason:
        if self.problems:
            return HealthReason.BLIND(findings=[each.reason for each in self.problems])
        if self.warnings:
            return HealthReason.SEES_WITH_WARNINGS(findings=[each.reason for each in self.warnings])
        return HealthReason.SEES()


def judge(facts: Facts, blind_after_s: float) -> Verdict:
    """Return the verdict. `blind_after_s` is the longest allowed time without polling."""
    limit = timedelta(seconds=blind_after_s)
    watching = _tasks(facts, limit, watching=True)
    problems = (*_servers(facts), *_processes(facts), *watching, *_blind_to_clusters(facts, limit))
    others = _tasks(facts, limit, watching=False)
    return Verdict(
        problems,
        (
            *_clusters(facts, limit),
            *others,
            *_clocks(facts),
            *_notifications(facts),
            *_history(facts),
            *_archive(facts),
        ),
    )


def _servers(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.database, Unavailable):
        yield Finding("database", HealthReason.DATABASE_SILENT(why=facts.database.why))
    if isinstance(facts.queue, Unavailable):
        yield Finding("redis", HealthReason.REDIS_SILENT(why=facts.queue.why))


def _processes(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.queue, Unavailable):
        return
    if not any(beat.facts.get("leads") for beat in facts.queue.beats if _lives(beat.at, facts)):
        yield Finding("beat", HealthReason.NO_BEAT())
    if not any(_lives(worker.at, facts) for worker in facts.queue.workers):
        yield Finding("worker", _no_worker(facts.queue))


def _no_worker(queue: Queue) -> Reason:
    return HealthReason.NO_WORKER_FOR_QUEUE(count=queue.waiting) if queue.waiting else HealthReason.NO_WORKER()


def _lives(at: datetime, facts: Facts) -> bool:
    return facts.at - at < _SILENT_AFTER


def _tasks(facts: Facts, limit: timedelta, *, watching: bool) -> Iterator[Finding]:
    """Yield findings about overdue tasks. `watching` selects the tasks for polling and alerts: short intervals."""
    stored = facts.stored
    for task, period in facts.periods.items() if stored else ():
        if (period <= _WATCHING_PERIOD) is not watching:
            continue
        tick = stored.ticks.get(task) if stored else None
        if tick is None and not watching:
            continue  # the first interval of the task is not over
        name = TaskName[task.upper()]()
        if tick is None or tick.ended_at is None:
            what = HealthReason.TASK_NEVER_ENDED(task=name)
        elif facts.at - tick.ended_at > limit + 3 * period:
            what = HealthReason.TASK_OVERDUE(task=name, age=facts.at - tick.ended_at)
        else:
            continue
        if _fails(tick):
            what = HealthReason.TASK_FAILS(what=what, failure=columns.stored(tick, "failure"))
        yield Finding(task, what)


def _fails(tick: Tick | None) -> TypeGuard[Tick]:
    if tick is None or tick.failed_at is None:
        return False
    return tick.ended_at is None or tick.failed_at > tick.ended_at


def _blind_to_clusters(facts: Facts, limit: timedelta) -> Iterator[Finding]:
    clusters = facts.stored.clusters if facts.stored else ()
    if clusters and all(_overdue(cluster, limit) for cluster in clusters):
        yield Finding("clusters", HealthReason.NONE_POLLED(length=min(each.lag_s for each in clusters)))
    elif len(clusters) > 1 and all(not cluster.reachable and not cluster.ended for cluster in clusters):
        # If one cluster does not answer, the problem is probably there. If none does, it is probably Waymark's.
        yield Finding("clusters", HealthReason.ALL_SILENT(count=len(clusters)))


def _clusters(facts: Facts, limit: timedelta) -> Iterator[Finding]:
    clusters = facts.stored.clusters if facts.stored else ()
    late = [cluster for cluster in clusters if _overdue(cluster, limit)]
    strange = [cluster for cluster in clusters if cluster.stranger]
    silent = [each for each in clusters if not (each.reachable or each.stranger or each.ended)]
    if strange:
        yield Finding("clusters", HealthReason.ANOTHER_CLUSTER(clusters=_of(strange, clusters)))
    if 0 < len(late) < len(clusters):
        overdue = HealthReason.CLUSTER_OVERDUE if len(late) == 1 else HealthReason.CLUSTERS_OVERDUE
        yield Finding("clusters", overdue(clusters=_of(late, clusters)))
    if silent and (len(silent) < len(clusters) or len(clusters) == 1):
        gives_none = HealthReason.CLUSTER_SILENT if len(silent) == 1 else HealthReason.CLUSTERS_SILENT
        yield Finding("clusters", gives_none(clusters=_of(silent, clusters)))


def _overdue(cluster: ClusterLag, limit: timedelta) -> bool:
    return cluster.lag_s > limit.total_seconds()


def _of(some: list[ClusterLag], all_of_them: tuple[ClusterLag, ...]) -> Reason:
    return HealthReason.OF_CLUSTERS(count=len(some), all=len(all_of_them))


def _clocks(facts: Facts) -> Iterator[Finding]:
    ahead_s = 0.0 if isinstance(facts.database, Unavailable) else facts.database.clock_ahead_s
    if abs(ahead_s) > _CLOCKS_APART_S:
        where = HealthReason.CLOCK_AHEAD if ahead_s > 0 else HealthReason.CLOCK_BEHIND
        yield Finding("clocks", where(length=abs(ahead_s)))


def _notifications(facts: Facts) -> Iterator[Finding]:
    stored = facts.stored or Stored()
    oldest = stored.deliveries.oldest_pending_at
    if oldest is not None and facts.at - oldest > _UNDELIVERED_AFTER:
        yield Finding("notifications", HealthReason.DELIVERY_WAITS(length=facts.at - oldest))
    if count := stored.deliveries.dead_today:
        yield Finding("notifications", HealthReason.NOTIFICATIONS_GIVEN_UP(count=count))


def _history(facts: Facts) -> Iterator[Finding]:
    if facts.stored and facts.stored.history:
        yield Finding("history", HealthReason.NO_ROLLUPS(why=facts.stored.history))


def _archive(facts: Facts) -> Iterator[Finding]:
    archive = (facts.stored or Stored()).archive
    if count := archive.unreadable:
        yield Finding("archive", HealthReason.ARCHIVED_FILES_UNREADABLE(count=count, problem=archive.problem))
