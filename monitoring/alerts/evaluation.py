"""Evaluates due rules on stored rows.

One transaction locks the rules of a batch, evaluates them, stores incidents and notifications, and sets the next check.
If a worker dies, its batch stays due. Two workers never take the same rule, because locked rows are skipped. The
evaluation waits only for the database.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from monitoring.alerts.defaults import ensure_default_rules
from monitoring.alerts.fleet import Fleet, cluster_facts, outages_by_cluster, waymark_facts
from monitoring.alerts.gathering import gather
from monitoring.alerts.gathering.query import FactQuery
from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.alerts.memory import WAYMARK, Memory, recall, remember
from monitoring.alerts.rule_facts import Facts
from monitoring.alerts.scope import assign, rules_of_kinds, terms_of, watch_of
from monitoring.alerts.verdicts import Verdict, apply_transitions, close_left_behind, close_unwatched
from monitoring.alerts.walk import LATE, State, advance
from monitoring.bulk import update
from monitoring.models import AlertRule, OutageKind
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

BATCH = 2000
# Rules look back at most this far. After a longer outage, older problems open no incidents.
FARTHEST = timedelta(days=7)

Watched = Mapping[int, Collection[int]]  # rule ID → the subjects that the rule decides for


@dataclass(frozen=True)
class Pass:
    """What all kinds of one batch have in common. `shared` stores what gatherers read once for several kinds."""

    now: datetime
    fleet: Fleet
    watched: Watched
    shared: dict[object, Any] = field(default_factory=dict)


def evaluate_due(now: datetime) -> CycleReport:
    """Evaluate every rule whose check is due."""
    ensure_default_rules()
    outcome: Counter[str] = Counter(resolved=close_unwatched(now))
    while batch := _evaluate_batch(now):
        outcome += batch
    return _report(outcome)


@transaction.atomic
def _evaluate_batch(now: datetime) -> Counter[str]:
    due = Q(next_check_at=None) | Q(next_check_at__lte=now)
    rules = list(
        AlertRule.objects.filter(due, enabled=True)
        .order_by("kind", "id")
        .select_for_update(of=("self",), skip_locked=True)[:BATCH]
    )
    if not rules:
        return Counter()
    fleet = Fleet.read(now, _own_jobs(rules))
    outcome: Counter[str] = Counter(taken=len(rules))
    this = Pass(now, fleet, _watched(rules, fleet))
    for kind, alike in _alike(rules):
        outcome += _evaluate(this, kind, alike)
    for rule in rules:
        rule.next_check_at = now + timedelta(seconds=rule.check_every_s)
    columns = ("next_check_at", "last_checked_at", "evaluated_until")
    update(AlertRule, [{"id": rule.pk, **{name: getattr(rule, name) for name in columns}} for rule in rules], columns)
    return outcome


def _own_jobs(rules: Sequence[AlertRule]) -> list[int] | None:
    """Return the jobs that the fleet must contain, or None for all jobs if a rule covers more than one job."""
    own = [rule.job_id for rule in rules if rule.job_id is not None]
    return own if len(own) == len(rules) else None


def _watched(rules: Sequence[AlertRule], fleet: Fleet) -> Watched:
    """Return the subjects of each rule of a known kind. A rule about clusters always watches all of them."""
    about = {rule.pk: kinds()[rule.kind].subject for rule in rules if rule.kind in kinds()}
    jobs = assign(rules_of_kinds(rule.kind for rule in rules), list(fleet.jobs.values()))
    wide: dict[Subject, Collection[int]] = {Subject.CLUSTER: set(fleet.clusters), Subject.WAYMARK: {WAYMARK}}
    return {
        rule: {job.pk for job in jobs[rule]} if subject is Subject.JOB else wide[subject]
        for rule, subject in about.items()
    }


def _alike(rules: Iterable[AlertRule]) -> Iterable[tuple[Kind, list[AlertRule]]]:
    """Group rules whose facts are gathered together. Rules of an unknown kind (of a newer Waymark) are skipped."""
    groups: dict[tuple[str, object], list[AlertRule]] = defaultdict(list)
    for rule in rules:
        if rule.kind in kinds():
            groups[rule.kind, kinds()[rule.kind].gathered_by(terms_of(rule))].append(rule)
    return ((kinds()[name], alike) for (name, _), alike in groups.items())


def _evaluate(this: Pass, kind: Kind, rules: Sequence[AlertRule]) -> Counter[str]:
    watched, memory = this.watched, recall([rule.pk for rule in rules])
    walkable = {rule.pk: _walkable(kind, watched[rule.pk], this.fleet) for rule in rules}
    facts = _facts(this, kind, rules, walkable, memory)
    verdicts: list[Verdict] = []
    changed: dict[int, dict[int, State]] = {}
    outcome: Counter[str] = Counter()
    for rule in rules:
        known = memory.get(rule.pk, {})
        walked = _walk(this, kind, rule, facts, walkable[rule.pk], known)
        moved = (each for each in walked if each.state != known.get(each.subject, State()))
        changed[rule.pk] = {each.subject: each.state for each in moved}
        verdicts += walked
        left = [subject for subject in known if subject not in watched[rule.pk]]
        changed[rule.pk] |= dict.fromkeys(left, State())
        outcome["resolved"] += close_left_behind(kind, rule, left, this.now)
        if watched[rule.pk] and not walkable[rule.pk]:
            outcome["frozen"] += 1
        else:
            outcome["evaluated"] += 1
            parts = _parts(kind, rule, this.fleet, walkable[rule.pk])
            rule.evaluated_until = rule.evaluated_until | dict.fromkeys(parts, this.now.isoformat())
            rule.last_checked_at = this.now
    outcome += apply_transitions(kind, verdicts, this.fleet, this.now)
    remember(kind.subject, changed, this.now)
    return outcome


def _walkable(kind: Kind, watched: Collection[int], fleet: Fleet) -> Collection[int]:
    """Return the watched subjects without the jobs of clusters about which Waymark has no current information."""
    if kind.subject is not Subject.JOB or not fleet.frozen:
        return watched
    return {job for job in watched if fleet.jobs[job].cluster_id not in fleet.frozen}


def _parts(kind: Kind, rule: AlertRule, fleet: Fleet, walkable: Collection[int]) -> set[str]:
    """Return the parts of the fleet that the rule looks at.

    A rule for many jobs looks at every cluster that answers, even at a cluster without jobs.
    """
    if kind.subject is not Subject.JOB:
        return {""}
    if rule.job_id is not None:
        return {fleet.part(kind.subject, job) for job in walkable}
    return {str(cluster) for cluster in fleet.clusters if cluster not in fleet.frozen}


def _facts(
    this: Pass, kind: Kind, rules: Sequence[AlertRule], walkable: Watched, memory: Memory
) -> Mapping[int, Facts]:
    fleet, now = this.fleet, this.now
    looked = (_looked_until(rule, part, now) for rule in rules for part in _parts(kind, rule, fleet, walkable[rule.pk]))
    since = min((now - kind.reach if until is None else until for until in looked), default=now)
    match kind.subject:
        case Subject.CLUSTER:
            return cluster_facts(kind.source, fleet.clusters, since)
        case Subject.WAYMARK:
            return waymark_facts(since, now)
        case Subject.JOB:
            jobs = set().union(*walkable.values())
            must = {job for rule in rules for job in memory.get(rule.pk, ()) if job in walkable[rule.pk]}
            query = FactQuery(kind, [terms_of(rule) for rule in rules], sorted(jobs), since, now, must, this.shared)
            return _with_outages(kind, gather(query), fleet, since)


def _looked_until(rule: AlertRule, part: str, now: datetime) -> datetime | None:
    """Return how far the rule has looked in this part of the fleet; None: the rule never looked there.

    LATE is subtracted, so that rows that were stored late are evaluated, too. The time of a cluster that does not
    answer does not advance.
    """
    written = rule.evaluated_until.get(part)
    return max(datetime.fromisoformat(written) - LATE, now - FARTHEST) if written else None


def _with_outages(kind: Kind, found: Mapping[int, Facts], fleet: Fleet, since: datetime) -> Mapping[int, Facts]:
    """Add the outages of each job's cluster for kinds that find something missing.

    Missing rows prove nothing while the cluster did not answer or was not polled.
    """
    outages = outages_by_cluster(since, OutageKind) if kind.by_absence else {}
    if not outages:
        return found
    return {
        job: replace(facts, outages=outages.get(fleet.jobs[job].cluster_id, ())) if job in fleet.jobs else facts
        for job, facts in found.items()
    }


def _walk(
    this: Pass,
    kind: Kind,
    rule: AlertRule,
    facts: Mapping[int, Facts],
    walkable: Collection[int],
    known: Mapping[int, State],
) -> list[Verdict]:
    """Return a verdict for each subject whose state changed or is open. The others are quiet as before."""
    watch = watch_of(rule)
    since = {part: _looked_until(rule, part, this.now) for part in _parts(kind, rule, this.fleet, walkable)}
    verdicts: list[Verdict] = []
    for subject in facts.keys() & walkable:
        before = known.get(subject, State())
        begin = since[this.fleet.part(kind.subject, subject)]
        state, transitions = advance(watch, facts[subject], before, begin, this.now)
        if state != before or transitions or state.is_open:
            verdicts.append(Verdict(rule, watch, subject, facts[subject], state, transitions))
    return verdicts


def _report(outcome: Counter[str]) -> CycleReport:
    changes = [
        code(count=outcome[kind])
        for kind, code in (
            ("opened", WorkReason.INCIDENTS_OPENED),
            ("changed", WorkReason.INCIDENTS_UPDATED),
            ("resolved", WorkReason.INCIDENTS_RESOLVED),
        )
        if outcome[kind]
    ]
    if not outcome["evaluated"] and not outcome["frozen"]:
        return CycleReport((WorkReason.INCIDENTS_CLOSED(changes=changes),) if changes else ())
    looked = WorkReason.RULES_EVALUATED(count=outcome["evaluated"])
    if outcome["frozen"]:
        looked = WorkReason.RULES_FROZEN(looked=looked, count=outcome["frozen"])
    if not changes:
        return CycleReport(left=(WorkReason.NO_INCIDENT_CHANGED(looked=looked),))
    return CycleReport((WorkReason.INCIDENTS_CHANGED(looked=looked, changes=changes),))
