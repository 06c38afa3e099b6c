"""What rules remember of their subjects, between the rows and the walk.

A subject is named by a number: of its job, or its cluster, as the rule's kind watches the one or the other; Waymark
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
    """By rule and subject; a subject that is not there is quiet, and nothing is remembered of it."""
    found: Memory = defaultdict(dict)
    for row in RuleState.objects.filter(rule__in=rules):
        subject = row.job_id or row.cluster_id or WAYMARK
        found[row.rule_id][subject] = State(
            RulePhase(row.phase), row.since, row.opened_at, row.flapping, tuple(row.opens), row.counts_since
        )
    return found


def remember(kind_of_subject: Subject, changed: Mapping[int, Mapping[int, State]], now: datetime) -> None:
    """Write what changed, by rule and subject; what is not worth remembering is forgotten."""
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
    """A person resolved it: its rule stays quiet about the subject until the trouble was gone once, and what it counts
    counts anew from now. Call within the transaction that resolves it.

    The rule's row is locked first: an evaluation under way ends before, and the next one sees this.
    """
    if incident.rule_id is None:
        return
    AlertRule.objects.select_for_update().filter(pk=incident.rule_id).first()
    values = {"phase": RulePhase.DISMISSED, "since": now, "opened_at": None, "flapping": False, "counts_since": now}
    cluster = None if incident.job_id else incident.cluster_id
    subject: dict[str, Any] = {"job_id": incident.job_id, "cluster_id": cluster}
    RuleState.objects.update_or_create(rule_id=incident.rule_id, **subject, defaults=values)
