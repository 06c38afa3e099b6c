"""Turn openings and closings of the walk into incidents, many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from monitoring.alerts.fleet import Fleet
from monitoring.alerts.incidents import Change, Ending, Opening, change_incidents, open_incidents, resolve_incidents
from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import Finding, Kind, Subject
from monitoring.alerts.memory import WAYMARK, dismiss
from monitoring.alerts.rule_facts import Facts
from monitoring.alerts.walk import Move, State, Transition, Watch
from monitoring.models import AlertRule, Cluster, Incident, IncidentState, Job, RulePhase, RuleState, Severity
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason

Unresolved = dict[tuple[int, int], Incident]  # (rule ID, subject) → incident


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one rule for one subject: its present state, and its transitions since the last evaluation."""

    rule: AlertRule
    watch: Watch
    subject: int
    facts: Facts
    state: State
    transitions: Sequence[Transition]


def apply_transitions(kind: Kind, verdicts: Sequence[Verdict], fleet: Fleet, now: datetime) -> Counter[str]:
    """Open, close and change incidents. Call this within the transaction that stores the states."""
    unresolved = _unresolved({verdict.rule.pk for verdict in verdicts})
    outcome: Counter[str] = Counter()
    for turn in range(max((len(verdict.transitions) for verdict in verdicts), default=0)):
        moved = [(verdict, verdict.transitions[turn]) for verdict in verdicts if len(verdict.transitions) > turn]
        outcome["opened"] += _open(
            [each for each in moved if each[1].move is Move.OPENED], unresolved, kind, fleet, now
        )
        outcome["resolved"] += _close([each for each in moved if each[1].move is Move.CLOSED], unresolved, fleet, now)
    outcome["changed"] += _change([each for each in verdicts if not each.transitions], unresolved, fleet, now)
    return outcome


def finding_of(watch: Watch, facts: Facts, at: datetime, name: str, flapping: bool = False) -> Finding:
    found = watch.kind.describe(facts, watch.terms, at, name)
    if not flapping:
        return found
    opens, window = watch.holds.flap_opens, watch.holds.flap_window
    reason = AlertReason.FLAPPING(subject=name, opens=opens, window=window, finding=found.reason)
    return Finding(reason, found.evidence | {"flapping": True})


def _unresolved(rules: Iterable[int]) -> Unresolved:
    found = Incident.objects.filter(rule__in=list(rules)).exclude(state=IncidentState.RESOLVED)
    return {
        (each.rule_id, each.job_id or each.cluster_id or WAYMARK): each for each in found if each.rule_id is not None
    }


def _open(
    moved: Sequence[tuple[Verdict, Transition]], unresolved: Unresolved, kind: Kind, fleet: Fleet, now: datetime
) -> int:
    """Open an incident for each rule and subject. If they have an unresolved incident, it stays unchanged."""
    fresh = [each for each in moved if (each[0].rule.pk, each[0].subject) not in unresolved]
    jobs = Job.objects.only("name", "cluster_id").in_bulk({each.subject for each, _ in fresh}) if fresh else {}
    clusters = Cluster.objects.in_bulk(fleet.clusters) if fresh and kind.subject is Subject.CLUSTER else {}
    openings = [
        _opening(kind, verdict, transition, fleet, jobs if kind.subject is Subject.JOB else {}, clusters)
        for verdict, transition in fresh
    ]
    for (verdict, _), incident in zip(fresh, open_incidents(openings, now) if openings else [], strict=True):
        unresolved[verdict.rule.pk, verdict.subject] = incident
    return len(fresh)


def _opening(
    kind: Kind,
    verdict: Verdict,
    transition: Transition,
    fleet: Fleet,
    jobs: Mapping[int, Job],
    clusters: Mapping[int, Cluster],
) -> Opening:
    name = fleet.name(kind.subject, verdict.subject)
    finding = finding_of(verdict.watch, verdict.facts, transition.seen_at, name, transition.flapping)
    return Opening(
        kind=kind.name,
        severity=Severity(verdict.rule.severity),
        finding=finding.reason,
        evidence=finding.evidence,
        rule=verdict.rule,
        job=jobs.get(verdict.subject),
        cluster=clusters.get(verdict.subject),
        at=transition.at,
    )


def _close(moved: Sequence[tuple[Verdict, Transition]], unresolved: Unresolved, fleet: Fleet, now: datetime) -> int:
    endings = []
    for verdict, transition in moved:
        incident = unresolved.pop((verdict.rule.pk, verdict.subject), None)
        if incident is not None:
            name = fleet.name(verdict.watch.kind.subject, verdict.subject)
            finding = finding_of(verdict.watch, verdict.facts, transition.seen_at, name)
            reason = AlertReason.RESOLVED(lasted=transition.at - incident.opened_at, why=finding.reason)
            endings.append(Ending(incident, reason, finding.evidence, at=transition.at))
    return len(resolve_incidents(endings, now)) if endings else 0


def _change(verdicts: Sequence[Verdict], unresolved: Unresolved, fleet: Fleet, now: datetime) -> int:
    """Store changed findings of unresolved incidents."""
    changes = []
    for verdict in verdicts:
        incident = unresolved.get((verdict.rule.pk, verdict.subject))
        if incident is None:
            continue
        finding = _changed(verdict, stored(incident, "sentence"), fleet, now)
        if finding is not None and finding.reason != stored(incident, "sentence"):
            changes.append(Change(incident, finding.reason, finding.evidence))
    if changes:
        change_incidents(changes, now)
    return len(changes)


def _changed(verdict: Verdict, before: Reason | str, fleet: Fleet, now: datetime) -> Finding | None:
    """Return the present finding of an unresolved incident, or None if its stored finding remains.

    The text of a flapping incident without a problem says that, because it stays open for a whole flapping window. Any
    other one keeps its finding until it closes. Only counts change while the problem lasts: a finding with an age would
    change with each evaluation.
    """
    watch, state = verdict.watch, verdict.state
    name = fleet.name(watch.kind.subject, verdict.subject)
    if state.phase is RulePhase.CLOSING and state.flapping:
        calm = {"opens": len(state.opens), "window": watch.holds.flap_window, "since": state.since or now}
        return Finding(AlertReason.FLAPPING_CALM(subject=name, **calm), {"flapping": True})
    if state.phase is not RulePhase.OPEN:
        return None
    returned = isinstance(before, Reason) and before.code is AlertReason.FLAPPING_CALM
    if not watch.kind.counts and not returned:
        return None
    return finding_of(watch, verdict.facts, now, name, state.flapping)


@transaction.atomic
def close_unwatched(now: datetime) -> int:
    """Resolve incidents that no rule evaluates any more: the rule was disabled or deleted, or the cluster was removed.

    If such a cluster is watched again later, its rules do not count earlier events again.
    """
    RuleState.objects.filter(rule__enabled=False).delete()
    without_rule = Q(Q(rule=None) | Q(rule__enabled=False), kind__in=list(kinds()))
    left = (
        Incident.objects.filter(without_rule | Q(cluster__archived_at__isnull=False))
        .exclude(state=IncidentState.RESOLVED)
        .select_related("job", "cluster")
    )
    for each in left:
        if _is_cluster_removed(each):
            dismiss(each, now)
    endings = [_unwatched(each, now) for each in left]
    return len(resolve_incidents(endings, now)) if endings else 0


def _is_cluster_removed(incident: Incident) -> bool:
    return incident.cluster is not None and incident.cluster.archived_at is not None


def _unwatched(incident: Incident, now: datetime) -> Ending:
    lasted = now - incident.opened_at
    if _is_cluster_removed(incident):
        return Ending(incident, AlertReason.CLUSTER_REMOVED(lasted=lasted), {"cluster": "removed"})
    if incident.rule_id:
        return Ending(incident, AlertReason.RULE_OFF(lasted=lasted), {"rule": "off"})
    return Ending(incident, AlertReason.RULE_REMOVED(lasted=lasted), {"rule": "removed"})


def close_left_behind(kind: Kind, rule: AlertRule, subjects: Sequence[int], now: datetime) -> int:
    """Resolve incidents of subjects that the rule no longer decides for: another rule does, or labels changed."""
    if not subjects:
        return 0
    column = {Subject.JOB: "job__in", Subject.CLUSTER: "cluster__in", Subject.WAYMARK: ""}[kind.subject]
    left = Incident.objects.filter(rule=rule, **({column: subjects} if column else {}))
    left = left.exclude(state=IncidentState.RESOLVED).select_related("job", "cluster")
    endings = [
        Ending(each, AlertReason.RULE_ELSEWHERE(lasted=now - each.opened_at), {"rule": "elsewhere"}) for each in left
    ]
    return len(resolve_incidents(endings, now)) if endings else 0
