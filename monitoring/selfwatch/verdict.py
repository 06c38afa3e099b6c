"""Do we see? A pure function of the facts, so that the endpoint, the page, the ping and the metric agree.

In English, as programs and logs have it. On pages dashboard/phrasebook/health.py says it in their language.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.durations import in_words
from monitoring.selfwatch.own_facts import Away, ClusterLag, Facts, Queue, Stored

# A sign of life is renewed every second or two.
_SILENT_AFTER = timedelta(seconds=15)
_WATCHING_PERIOD = timedelta(seconds=10)
_CLOCKS_APART_S = 30.0
_UNDELIVERED_AFTER = timedelta(minutes=10)


@dataclass(frozen=True)
class Finding:
    """`part` names who has the problem: "database", "redis", "beat", "worker", a task, "clusters", "notifications",
    "history", "archive"."""

    part: str
    sentence: str


@dataclass(frozen=True)
class Verdict:
    """`problems`: because of them something may happen and nobody would be told. `warnings`: not yet."""

    problems: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return not self.problems

    @property
    def sentence(self) -> str:
        if self.problems:
            return f"Waymark is blind: {_said(self.problems)}"
        if self.warnings:
            return f"Waymark sees. {_said(self.warnings)}"
        return "Waymark sees: every part answers and every cluster is asked in time."


def _said(findings: tuple[Finding, ...]) -> str:
    return " ".join(finding.sentence for finding in findings)


def judge(facts: Facts, blind_after_s: float) -> Verdict:
    """`blind_after_s`: for how long nothing may have been looked at."""
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
    if isinstance(facts.database, Away):
        yield Finding("database", f"The database does not answer: {facts.database.why}.")
    if isinstance(facts.queue, Away):
        yield Finding("redis", f"Redis does not answer: {facts.queue.why}.")


def _processes(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.queue, Away):
        return
    if not any(beat.facts.get("leads") for beat in facts.queue.beats if _lives(beat.at, facts)):
        yield Finding("beat", "No beat ticks, so nobody is told to look.")
    if not any(_lives(worker.at, facts) for worker in facts.queue.workers):
        yield Finding("worker", _no_worker(facts.queue))


def _no_worker(queue: Queue) -> str:
    if queue.waiting:
        return f"No worker takes ticks; {queue.waiting} ticks wait."
    return "No worker takes ticks."


def _lives(at: datetime, facts: Facts) -> bool:
    return facts.at - at < _SILENT_AFTER


def _tasks(facts: Facts, limit: timedelta, *, watching: bool) -> Iterator[Finding]:
    """Those without which nobody looks or is told are the ones of short periods; the others can wait."""
    stored = facts.stored
    for task, period in facts.periods.items() if stored else ():
        if (period <= _WATCHING_PERIOD) is not watching:
            continue
        tick = stored.ticks.get(task) if stored else None
        if tick is None and not watching:
            continue  # its first period is not over
        name = task.replace("_", " ")
        if tick is None or tick.ended_at is None:
            yield Finding(task, f"The task “{name}” has never come to its end{_because(tick)}.")
        elif facts.at - tick.ended_at > limit + 3 * period:
            age = in_words(facts.at - tick.ended_at)
            yield Finding(task, f"The task “{name}” last came to its end {age} ago{_because(tick)}.")


def _because(tick: object) -> str:
    failure = getattr(tick, "failure", "")
    failed_at, ended_at = getattr(tick, "failed_at", None), getattr(tick, "ended_at", None)
    return f"; it fails: {failure}" if failed_at and (ended_at is None or failed_at > ended_at) else ""


def _blind_to_clusters(facts: Facts, limit: timedelta) -> Iterator[Finding]:
    clusters = facts.stored.clusters if facts.stored else ()
    if clusters and all(_overdue(cluster, limit) for cluster in clusters):
        unasked = in_words(min(each.lag_s for each in clusters))
        yield Finding("clusters", f"No cluster has been asked for {unasked}.")
    elif len(clusters) > 1 and all(not cluster.reachable for cluster in clusters):
        # One that is silent has a problem of its own. All of them at once are more likely ours.
        said = f"None of the {len(clusters)} clusters answers; is this machine cut off from its network?"
        yield Finding("clusters", said)


def _clusters(facts: Facts, limit: timedelta) -> Iterator[Finding]:
    clusters = facts.stored.clusters if facts.stored else ()
    late = [cluster for cluster in clusters if _overdue(cluster, limit)]
    strange = [cluster for cluster in clusters if cluster.stranger]
    silent = [cluster for cluster in clusters if not cluster.reachable and not cluster.stranger]
    if strange:
        yield Finding("clusters", f"At the address of {_of(strange, clusters)} another one answers.")
    if 0 < len(late) < len(clusters):
        have = "has" if len(late) == 1 else "have"
        said = f"{_of(late, clusters)} {have} not been asked in time: the workers do not keep up."
        yield Finding("clusters", said)
    if silent and (len(silent) < len(clusters) or len(clusters) == 1):
        give = "gives" if len(silent) == 1 else "give"
        yield Finding("clusters", f"{_of(silent, clusters)} {give} no answer.")


def _overdue(cluster: ClusterLag, limit: timedelta) -> bool:
    return cluster.lag_s > limit.total_seconds()


def _of(some: list[ClusterLag], all_of_them: tuple[ClusterLag, ...]) -> str:
    return f"{len(some)} of {len(all_of_them)} cluster{'s' if len(all_of_them) != 1 else ''}"


def _clocks(facts: Facts) -> Iterator[Finding]:
    ahead_s = 0.0 if isinstance(facts.database, Away) else facts.database.clock_ahead_s
    if abs(ahead_s) > _CLOCKS_APART_S:
        where = "ahead of" if ahead_s > 0 else "behind"
        yield Finding("clocks", f"This machine's clock is {in_words(abs(ahead_s))} {where} the database's.")


def _notifications(facts: Facts) -> Iterator[Finding]:
    stored = facts.stored or Stored()
    oldest = stored.deliveries.oldest_pending_at
    if oldest is not None and facts.at - oldest > _UNDELIVERED_AFTER:
        said = f"A notification has waited for {in_words(facts.at - oldest)} to be delivered."
        yield Finding("notifications", said)
    if count := stored.deliveries.dead_today:
        some = f"{count} notification{'s' if count != 1 else ''}"
        yield Finding("notifications", f"{some} of the last day could not be delivered.")


def _history(facts: Facts) -> Iterator[Finding]:
    if facts.stored and facts.stored.history:
        why = facts.stored.history.rstrip(".")
        said = f"The history's roll-ups are not being made, so long charts take longer: {why}."
        yield Finding("history", said)


def _archive(facts: Facts) -> Iterator[Finding]:
    archive = (facts.stored or Stored()).archive
    count, problem = archive.unreadable, archive.problem
    if count == 1:
        yield Finding("archive", f"{count} file of the history's archive cannot be read: {problem}.")
    elif count:
        said = f"{count} files of the history's archive cannot be read, one of them: {problem}."
        yield Finding("archive", said)
