"""Select the rules that watch a job: for each kind, only the rules with the narrowest matching scope apply.

All rules of that scope apply, so that a job can have a warning and a critical threshold. A disabled rule counts, too:
its jobs are not watched for the kind. `watch_of` converts a stored rule to the form that the walk uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from monitoring.alerts.kinds import kind_of
from monitoring.alerts.kinds.base import Terms
from monitoring.alerts.selector import parse_stored
from monitoring.alerts.walk import Holds, Watch
from monitoring.models import AlertRule, Cluster, Job, RuleScope


@dataclass(frozen=True, slots=True)
class WatchedJob:
    pk: int
    name: str
    cluster_id: int
    labels: Mapping[str, str]


def watched_jobs(ids: Iterable[int] | None = None) -> list[WatchedJob]:
    """Return all jobs, or the given ones, with their labels."""
    clusters = Cluster.objects.only("name", "engine", "labels").in_bulk()
    jobs = Job.objects.order_by().values_list("pk", "name", "labels", "cluster_id")
    return [
        WatchedJob(pk, name, cluster, labels_of(name, labels, clusters[cluster]))
        for pk, name, labels, cluster in (jobs if ids is None else jobs.filter(pk__in=list(ids)))
    ]


def labels_of(job: str, labels: object, cluster: Cluster) -> dict[str, str]:
    """Return the job's own labels, those of its cluster that it does not override, and those that every job has."""
    return _texts(cluster.labels) | _texts(labels) | {"job": job, "cluster": cluster.name, "engine": cluster.engine}


def _texts(labels: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def rules_of_kinds(kinds: Iterable[str]) -> list[AlertRule]:
    """Return all rules of the kinds, enabled or disabled, with only the columns that determine the scope."""
    return list(AlertRule.objects.filter(kind__in=set(kinds)).only("pk", "kind", "job_id", "selector", "enabled"))


def assign(rules: Iterable[AlertRule], jobs: Sequence[WatchedJob]) -> dict[int, list[WatchedJob]]:
    """Return the jobs that each rule decides for, by rule ID. `rules` must contain all rules of their kinds."""
    by_kind: dict[str, list[AlertRule]] = defaultdict(list)
    for rule in rules:
        by_kind[rule.kind].append(rule)
    assigned: dict[int, list[WatchedJob]] = {}
    for of_kind in by_kind.values():
        assigned |= _assign_kind(of_kind, jobs)
    return assigned


def _assign_kind(rules: Sequence[AlertRule], jobs: Sequence[WatchedJob]) -> dict[int, list[WatchedJob]]:
    known = {job.pk: job for job in jobs}
    own = [rule for rule in rules if rule.scope is RuleScope.JOB]
    assigned = {rule.pk: [known[rule.job_id]] if rule.job_id in known else [] for rule in own}
    left = [job for job in jobs if job.pk not in {rule.job_id for rule in own}] if own else list(jobs)
    taken: set[int] = set()
    for rule in rules:
        if rule.scope is RuleScope.SELECTOR:
            selector = parse_stored(rule.selector)
            assigned[rule.pk] = [job for job in left if selector and selector.matches(job.labels)]
            taken |= {job.pk for job in assigned[rule.pk]}
    rest = [job for job in left if job.pk not in taken] if taken else left
    return assigned | {rule.pk: rest for rule in rules if rule.scope is RuleScope.EVERYTHING}


def rules_for(job: Job) -> list[AlertRule]:
    """Return the rules that decide about one job, with all columns."""
    rules = list(AlertRule.objects.select_related("job").prefetch_related("channels"))
    assigned = assign(rules, watched_jobs([job.pk]))
    return [rule for rule in rules if assigned.get(rule.pk)]


def terms_of(rule: AlertRule) -> Terms:
    return kind_of(rule.kind).fill(rule.threshold, rule.window_s, rule.parameters)


def watch_of(rule: AlertRule) -> Watch:
    """Return the kind, terms and holds of the rule, which its evaluation needs. Raises UnknownKind."""
    holds = Holds(
        open=timedelta(seconds=rule.open_hold_s),
        close=timedelta(seconds=rule.close_hold_s),
        flap_opens=rule.flap_opens,
        flap_window=timedelta(seconds=rule.flap_window_s),
    )
    return Watch(kind_of(rule.kind), terms_of(rule), holds)
