"""Compare a job's present values with the limits of its rules, and read the facts that backtests use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from monitoring.alerts.fleet import cluster_facts, outages_by_cluster, waymark_facts
from monitoring.alerts.gathering import gather
from monitoring.alerts.gathering.query import FactQuery
from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import Subject
from monitoring.alerts.memory import recall
from monitoring.alerts.rule_facts import Facts
from monitoring.alerts.scope import rules_for, watch_of
from monitoring.alerts.walk import State, Watch
from monitoring.models import AlertRule, Job, OutageKind


@dataclass(frozen=True)
class Standing:
    """How near a rule of a job is to opening. `value` and `limit` have the kind's unit; None: unknown."""

    rule: AlertRule
    watch: Watch
    value: float | None
    limit: float | None
    state: State

    @property
    def value_text(self) -> str:
        return "–" if self.value is None else self.watch.kind.unit.text(self.value)

    @property
    def limit_text(self) -> str:
        return "–" if self.limit is None else self.watch.kind.unit.text(self.limit)

    @property
    def is_met(self) -> bool:
        return self.value is not None and self.limit is not None and self.value >= self.limit

    @property
    def derives_limit(self) -> bool:
        return derives_limit(self.watch)

    @property
    def is_open(self) -> bool:
        return self.state.is_open


def standings(job: Job, now: datetime) -> list[Standing]:
    """Return the standings of the job rules that decide about the job, in the order of their kinds."""
    known = [rule for rule in rules_for(job) if rule.kind in kinds()]
    found = [standing_of(rule, job, now) for rule in known if kinds()[rule.kind].subject is Subject.JOB]
    order = list(kinds())
    return sorted(found, key=lambda each: (order.index(each.rule.kind), each.rule.severity))


def standing_of(rule: AlertRule, job: Job, now: datetime) -> Standing:
    watch, state = watch_of(rule), recall([rule.pk]).get(rule.pk, {}).get(job.pk, State())
    facts = facts_now(watch, job, now).after(state.counts_since if watch.kind.counts else None)
    value, limit = watch.kind.value(facts, watch.terms, now), watch.kind.limit(facts, watch.terms, now)
    return Standing(rule, watch, value, limit, state)


def derives_limit(watch: Watch) -> bool:
    """Return whether the rule derives its limit from the job's configuration."""
    return watch.kind.threshold is not None and watch.terms.threshold is None


def limit_now(watch: Watch, job: Job, now: datetime) -> float | None:
    """Return the rule's present limit for the job, or None if it is unknown."""
    return watch.kind.limit(facts_now(watch, job, now), watch.terms, now)


def facts_now(watch: Watch, job: Job, now: datetime) -> Facts:
    return facts_over(watch, [job.pk], now - watch.kind.reach, now, every=True)[job.pk]


def facts_over(
    watch: Watch, subjects: Sequence[int], since: datetime, until: datetime, *, every: bool = False
) -> dict[int, Facts]:
    """Return, by subject, all facts on which the rule's value depends within (since, until].

    Jobs that cannot have made the rule open are left out, unless `every` is true.
    """
    match watch.kind.subject:
        case Subject.CLUSTER:
            return cluster_facts(watch.kind.source, subjects, since)
        case Subject.WAYMARK:
            return waymark_facts(since, until)
        case Subject.JOB:
            query = FactQuery(watch.kind, [watch.terms], subjects, since, until, subjects if every else ())
            return _with_outages(watch, gather(query), since)


def _with_outages(watch: Watch, found: dict[int, Facts], since: datetime) -> dict[int, Facts]:
    if not watch.kind.by_absence or not found:
        return found
    outages = outages_by_cluster(since, OutageKind)
    clusters = dict(Job.objects.filter(pk__in=found).values_list("pk", "cluster_id")) if outages else {}
    return {job: replace(facts, outages=outages.get(clusters.get(job, 0), ())) for job, facts in found.items()}
