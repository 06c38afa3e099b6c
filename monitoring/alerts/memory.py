"""Load and store the states that rules remember of their subjects between two evaluations.

A subject is identified by the primary key of its job or cluster, depending on what the rule's kind watches. Waymark
itself is 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from monitoring.alerts.kinds.base import Subject
from monitoring.alerts.walk import State
from monitoring.bulk import upsert
from monitoring.models import AlertRule, Incident, RulePhase, RuleState

WAYMARK = 0
_FIELDS = ["phase", "since", "opened_at", "flapping", "opens", "counts_since"]

Memory = dict[int, dict[int, State]]


def recall(rules: Collection[int]) -> Memory:
    """Return the states by rule and subject. A subject without a state is quiet."""
    found: Memory = defaultdict(dict)
    for row in RuleState.objects.filter(rule__in=rules):
        subject = row.job_id or row.cluster_id or WAYMARK
        found[row.rule_id][subject] = State(
            RulePhase(row.phase), row.since, row.opened_at, row.flapping, tuple(row.opens), row.counts_since
        )
    return found


def remember(kind_of_subject: Subject, changed: Mapping[int, Mapping[int, State]], now: datetime) -> None:
    """Store the changed states by rule and subject, and delete states that equal the initial one."""
    kept: list[dict[str, Any]] = []
    for rule, states in changed.items():
        kept += [_row(kind_of_subject, rule, each, state, now) for each, state in states.items() if state != State()]
        _forget(kind_of_subject, rule, [each for each, state in states.items() if state == State()])
    upsert(RuleState, kept, ("rule_id", "job_id", "cluster_id"), _FIELDS)


def _row(kind_of_subject: Subject, rule: int, subject: int, state: State, now: datetime) -> dict[str, Any]:
    return {
        "rule_id": rule,
        "job_id": subject if kind_of_subject is Subject.JOB else None,
        "cluster_id": subject if kind_of_subject is Subject.CLUSTER else None,
        "phase": state.phase.value,
        "since": state.since or now,
        "opened_at": state.opened_at,
        "flapping": state.flapping,
        "opens": list(state.opens),
        "counts_since": state.counts_since,
    }


def _forget(kind_of_subject: Subject, rule: int, subjects: list[int]) -> None:
    if not subjects:
        return
    states = RuleState.objects.filter(rule=rule)
    match kind_of_subject:
        case Subject.JOB:
            states.filter(job__in=subjects).delete()
        case Subject.CLUSTER:
            states.filter(cluster__in=subjects).delete()
        case Subject.WAYMARK:
            states.delete()


def dismiss(incident: Incident, now: datetime) -> None:
    """Make the rule of a resolved incident quiet about the subject until the problem has ended once.

    Events before `now` no longer count. Call this function within the transaction that resolves the incident. It locks
    the rule's row first: an evaluation in progress ends before, and the next one sees the change.
    """
    if lock_rule(incident) is not None:
        _put(incident, RulePhase.DISMISSED, now, opened_at=None, counts_since=now)


def resume(incident: Incident, now: datetime) -> None:
    """Make the rule of a reopened incident find it open, and count the events before its resolution again.

    The rule resolves the incident when its condition is not met. Call this function like `dismiss`.
    """
    if lock_rule(incident) is not None:
        _put(incident, RulePhase.OPEN, now, opened_at=incident.opened_at, counts_since=None)


def lock_rule(incident: Incident) -> AlertRule | None:
    """Lock the rule of the incident and return it, or None if it was deleted."""
    return AlertRule.objects.select_for_update().filter(pk=incident.rule_id).first() if incident.rule_id else None


def _put(
    incident: Incident, phase: RulePhase, now: datetime, *, opened_at: datetime | None, counts_since: datetime | None
) -> None:
    values = {"phase": phase, "since": now, "opened_at": opened_at, "flapping": False, "counts_since": counts_since}
    cluster = None if incident.job_id else incident.cluster_id
    subject: dict[str, Any] = {"job_id": incident.job_id, "cluster_id": cluster}
    RuleState.objects.update_or_create(rule_id=incident.rule_id, **subject, defaults=values)
