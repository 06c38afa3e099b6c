"""An immutable view of what rules watch: jobs, clusters and their outages. It is read once per evaluation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from monitoring.alerts.kinds.base import Source, Subject
from monitoring.alerts.memory import WAYMARK
from monitoring.alerts.rule_facts import Facts, Interval
from monitoring.alerts.scope import WatchedJob, watched_jobs
from monitoring.models import Cluster, FoundResource, Outage, OutageKind
from monitoring.outages import is_late


@dataclass(frozen=True)
class Fleet:
    """Jobs and clusters that rules watch.

    `frozen`: clusters without current information; the rules of their jobs are not evaluated.
    """

    jobs: Mapping[int, WatchedJob]
    clusters: Mapping[int, str]
    frozen: frozenset[int]

    @classmethod
    def read(cls, now: datetime, jobs: Iterable[int] | None = None) -> Fleet:
        """Read the fleet with all jobs, or only with the given ones."""
        columns = ("pk", "name", "enabled", "unreachable_since", "stranger", "last_error_value", "next_poll_at")
        clusters = list(Cluster.objects.only(*columns))
        silent = (cluster.pk for cluster in clusters if not _is_outage_known(cluster, now))
        asked = {cluster.pk: cluster.name for cluster in clusters if cluster.enabled}
        return cls({job.pk: job for job in watched_jobs(jobs)}, asked, frozenset(silent))

    def name(self, subject: Subject, number: int) -> str:
        match subject:
            case Subject.JOB:
                return self.jobs[number].name
            case Subject.CLUSTER:
                return self.clusters[number]
            case Subject.WAYMARK:
                return "Waymark"

    def part(self, subject: Subject, number: int) -> str:
        """Return the part of the fleet for which a rule's progress is stored: for a job, its cluster."""
        return str(self.jobs[number].cluster_id) if subject is Subject.JOB else ""


def _is_outage_known(cluster: Cluster, now: datetime) -> bool:
    """Return whether Waymark polls the cluster on schedule, and gets answers or knows that the cluster has ended."""
    return cluster.enabled and (cluster.reachable or cluster.has_ended) and not is_late(cluster, now)


def outages_by_cluster(since: datetime, kinds: Iterable[OutageKind]) -> dict[int, list[Interval]]:
    """Return, by cluster, the outages that lasted beyond `since`, oldest first."""
    found: dict[int, list[Interval]] = defaultdict(list)
    rows = Outage.objects.filter(Q(ended_at=None) | Q(ended_at__gt=since), kind__in=list(kinds)).order_by("began_at")
    for cluster, began, ended in rows.values_list("cluster_id", "began_at", "ended_at"):
        found[cluster].append(Interval(began, ended))
    return found


_OUTAGES = {Source.OUTAGES: OutageKind.NO_ANSWER, Source.OTHER_CLUSTERS: OutageKind.ANOTHER_CLUSTER}


def cluster_facts(source: Source, clusters: Iterable[int], since: datetime) -> dict[int, Facts]:
    if source is Source.PLATFORM_PROBLEMS:
        outages = platform_problems()
    else:
        outages = outages_by_cluster(since, [_OUTAGES[source]])
    return {number: Facts(outages=outages.get(number, ())) for number in clusters}


def platform_problems() -> dict[int, list[Interval]]:
    """Return, by cluster, since when resources of its deployment have problems. Problems that are over are not kept."""
    live = FoundResource.objects.filter(gone_at=None)
    owners = {
        (source, namespace, name): cluster
        for source, namespace, name, cluster in live.exclude(cluster=None).values_list(
            "source", "namespace", "name", "cluster"
        )
    }
    found: dict[int, list[Interval]] = defaultdict(list)
    for row in live.exclude(problem_since=None).order_by("problem_since"):
        cluster = row.cluster_id or owners.get((row.source_id, row.namespace, row.deployment))
        if cluster is not None and row.problem_since is not None:
            found[cluster].append(Interval(row.problem_since, None))
    return found


def waymark_facts(since: datetime, now: datetime) -> dict[int, Facts]:
    """Return when clusters were not polled on schedule, and which polls are overdue now."""
    past = outages_by_cluster(since, [OutageKind.NOT_POLLED])
    due = Cluster.objects.filter(enabled=True, next_poll_at__lt=now).values_list("next_poll_at", flat=True)
    intervals = [interval for of_cluster in past.values() for interval in of_cluster]
    overdue = [Interval(at, None) for at in due if at]
    return {WAYMARK: Facts(outages=sorted([*intervals, *overdue], key=lambda each: each.began))}
