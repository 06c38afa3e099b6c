"""Do we see? A pure function of the facts, so that the endpoint, the page, the ping and the metric agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from monitoring.durations import in_words
from monitoring.selfwatch.facts import Away, ClusterLag, Facts, Queue, Stored

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
            return _("Waymark is blind: ") + " ".join(finding.sentence for finding in self.problems)
        if self.warnings:
            return _("Waymark sees. ") + " ".join(finding.sentence for finding in self.warnings)
        return _("Waymark sees: every part answers and every cluster is asked in time.")


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
        yield Finding("database", _("The database does not answer: %(why)s.") % {"why": facts.database.why})
    if isinstance(facts.queue, Away):
        yield Finding("redis", _("Redis does not answer: %(why)s.") % {"why": facts.queue.why})


def _processes(facts: Facts) -> Iterator[Finding]:
    if isinstance(facts.queue, Away):
        return
    if not any(beat.facts.get("leads") for beat in facts.queue.beats if _lives(beat.at, facts)):
        yield Finding("beat", _("No beat ticks, so nobody is told to look."))
    if not any(_lives(worker.at, facts) for worker in facts.queue.workers):
        yield Finding("worker", _no_worker(facts.queue))


def _no_worker(queue: Queue) -> str:
    if queue.waiting:
        return _("No worker takes ticks; %(waiting)s ticks wait.") % {"waiting": queue.waiting}
    return _("No worker takes ticks.")


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
        name = _(task.replace("_", " "))
        if tick is None or tick.ended_at is None:
            yield Finding(
                task,
                _("The task “%(name)s” has never come to its end%(because)s.")
                % {"name": name, "because": _because(tick)},
            )
        elif facts.at - tick.ended_at > limit + 3 * period:
            age = in_words(facts.at - tick.ended_at)
            yield Finding(
                task,
                _("The task “%(name)s” last came to its end %(age)s ago%(because)s.")
                % {"name": name, "age": age, "because": _because(tick)},
            )


def _because(tick: object) -> str:
    failure = getattr(tick, "failure", "")
    failed_at, ended_at = getattr(tick, "failed_at", None), getattr(tick, "ended_at", None)
    return (
        _("; it fails: %(failure)s") % {"failure": failure}
        if failed_at and (ended_at is None or failed_at > ended_at)
        else ""
    )


def _blind_to_clusters(facts: Facts, limit: timedelta) -> Iterator[Finding]:
    clusters = facts.stored.clusters if facts.stored else ()
    if clusters and all(_overdue(cluster, limit) for cluster in clusters):
        yield Finding(
            "clusters",
            _("No cluster has been asked for %(time)s.") % {"time": in_words(min(each.lag_s for each in clusters))},
        )
    elif len(clusters) > 1 and all(not cluster.reachable for cluster in clusters):
        # One that is silent has a problem of its own. All of them at once are more likely ours.
        yield Finding(
            "clusters",
            _("None of the %(len)s clusters answers; is this machine cut off from its network?")
            % {"len": len(clusters)},
        )


def _clusters(facts: Facts, limit: timedelta) -> Iterator[Finding]:
    clusters = facts.stored.clusters if facts.stored else ()
    late = [cluster for cluster in clusters if _overdue(cluster, limit)]
    strange = [cluster for cluster in clusters if cluster.stranger]
    silent = [cluster for cluster in clusters if not cluster.reachable and not cluster.stranger]
    if strange:
        said = _("At the address of %(clusters)s another one answers.")
        yield Finding("clusters", said % {"clusters": _of(strange, clusters)})
    if 0 < len(late) < len(clusters):
        said = ngettext(
            "%(clusters)s has not been asked in time: the workers do not keep up.",
            "%(clusters)s have not been asked in time: the workers do not keep up.",
            len(late),
        )
        yield Finding("clusters", said % {"clusters": _of(late, clusters)})
    if silent and (len(silent) < len(clusters) or len(clusters) == 1):
        said = ngettext("%(clusters)s gives no answer.", "%(clusters)s give no answer.", len(silent))
        yield Finding("clusters", said % {"clusters": _of(silent, clusters)})


def _overdue(cluster: ClusterLag, limit: timedelta) -> bool:
    return cluster.lag_s > limit.total_seconds()


def _of(some: list[ClusterLag], all_of_them: tuple[ClusterLag, ...]) -> str:
    said = ngettext("%(some)s of %(all)s cluster", "%(some)s of %(all)s clusters", len(all_of_them))
    return said % {"some": len(some), "all": len(all_of_them)}


def _clocks(facts: Facts) -> Iterator[Finding]:
    ahead_s = 0.0 if isinstance(facts.database, Away) else facts.database.clock_ahead_s
    if abs(ahead_s) > _CLOCKS_APART_S:
        ahead = _("This machine's clock is %(time)s ahead of the database's.")
        behind = _("This machine's clock is %(time)s behind the database's.")
        yield Finding("clocks", (ahead if ahead_s > 0 else behind) % {"time": in_words(abs(ahead_s))})


def _notifications(facts: Facts) -> Iterator[Finding]:
    stored = facts.stored or Stored()
    oldest = stored.deliveries.oldest_pending_at
    if oldest is not None and facts.at - oldest > _UNDELIVERED_AFTER:
        said = _("A notification has waited for %(time)s to be delivered.")
        yield Finding("notifications", said % {"time": in_words(facts.at - oldest)})
    if count := stored.deliveries.dead_today:
        said = ngettext(
            "%(count)s notification of the last day could not be delivered.",
            "%(count)s notifications of the last day could not be delivered.",
            count,
        )
        yield Finding("notifications", said % {"count": count})


def _history(facts: Facts) -> Iterator[Finding]:
    if facts.stored and facts.stored.history:
        said = _("The history's roll-ups are not being made, so long charts take longer: %(why)s.")
        yield Finding("history", said % {"why": facts.stored.history.rstrip(".")})


def _archive(facts: Facts) -> Iterator[Finding]:
    archive = (facts.stored or Stored()).archive
    if archive.unreadable:
        said = ngettext(
            "%(count)s file of the history's archive cannot be read: %(problem)s.",
            "%(count)s files of the history's archive cannot be read, one of them: %(problem)s.",
            archive.unreadable,
        )
        yield Finding("archive", said % {"count": archive.unreadable, "problem": archive.problem})
