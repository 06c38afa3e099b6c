"""Acknowledge, snooze, assign, resolve, reopen and annotate incidents for people, and end snoozes that are over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from django.db import IntegrityError, transaction

from monitoring import audit
from monitoring.alerts.incidents import (
    acknowledge_incident,
    add_note,
    assign_incident,
    reopen_incident,
    resolve_incident,
    snooze_incident,
    wake_incident,
)
from monitoring.alerts.kinds import kinds
from monitoring.alerts.memory import dismiss, lock_rule, resume
from monitoring.models import AlertRule, Incident, IncidentState
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason


class IncidentUnchanged(Exception):
    """Raised if an action is not possible; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason
        super().__init__(str(reason))


class IncidentMovedOn(IncidentUnchanged):
    """Raised if the incident's state has changed meanwhile; `reason` names the present state."""

    def __init__(self, incident: Incident) -> None:
        incident.refresh_from_db(fields=["state"])
        super().__init__(_ALREADY[IncidentState(incident.state)]())


_ALREADY = {
    IncidentState.OPEN: AlertReason.ALREADY_OPEN,
    IncidentState.ACKNOWLEDGED: AlertReason.ALREADY_ACKNOWLEDGED,
    IncidentState.SNOOZED: AlertReason.ALREADY_SNOOZED,
    IncidentState.RESOLVED: AlertReason.ALREADY_RESOLVED,
}


@transaction.atomic
def acknowledge(incident: Incident, by: str, note: str, now: datetime) -> None:
    before = incident.state
    if not acknowledge_incident(incident, by, note.strip(), now):
        raise IncidentMovedOn(incident)
    _record(incident, by, "incident.acknowledge", note, before)


def for_each(incidents: Iterable[Incident], act: Callable[[Incident], None]) -> int:
    """Apply `act` to the incidents one by one, skip those whose state has changed, and return how many it changed."""
    done = 0
    for incident in incidents:
        try:
            act(incident)
        except IncidentMovedOn:
            continue
        done += 1
    return done


@transaction.atomic
def snooze(incident: Incident, until: datetime, by: str, note: str, now: datetime) -> None:
    before = incident.state
    if not snooze_incident(incident, until, by, note.strip(), now):
        raise IncidentMovedOn(incident)
    _record(incident, by, "incident.snooze", note, before, until=until.isoformat())


@transaction.atomic
def resolve(incident: Incident, by: str, reason: str, now: datetime) -> None:
    """Resolve the incident. Its rule opens another one only for later failures, or if the problem ends and returns."""
    before = incident.state
    evidence = {"resolved_by": by, "note": reason.strip()}
    if not resolve_incident(incident, reason.strip(), evidence, now, by=by):
        raise IncidentMovedOn(incident)
    dismiss(incident, now)
    _record(incident, by, "incident.resolve", reason, before)


@transaction.atomic
def reopen(incident: Incident, by: str, note: str, now: datetime) -> None:
    """Reopen a resolved incident. Its rule finds it open, and resolves it when the condition is not met.

    Raises:
        IncidentUnchanged: The incident is unresolved, the rule has another unresolved one, or nothing watches it.
    """
    before, rule = incident.state, lock_rule(incident)  # 1. no evaluation opens another incident from here on
    if refusal := _why_not_reopened(incident, rule):
        raise IncidentUnchanged(refusal)
    try:
        with transaction.atomic():  # 2. if the incident has no rule, only a constraint prevents a second one
            reopened = reopen_incident(incident, by, note.strip(), now)
    except IntegrityError as error:
        incident.refresh_from_db()
        raise IncidentUnchanged(_why_not_reopened(incident, rule) or AlertReason.ALREADY_OPEN()) from error
    if not reopened:
        raise IncidentMovedOn(incident)
    resume(incident, now)
    _record(incident, by, "incident.reopen", note, before)


def _why_not_reopened(incident: Incident, rule: AlertRule | None) -> Reason | None:
    if incident.cluster is not None and incident.cluster.archived_at is not None:
        return AlertReason.NO_CLUSTER_TO_REOPEN()
    if incident.kind in kinds() and (rule is None or not rule.enabled):
        return AlertReason.NO_RULE_TO_REOPEN()
    same = {"rule": rule, "job": incident.job_id, "cluster": incident.cluster_id, "kind": incident.kind}
    others = Incident.objects.filter(**same).exclude(state=IncidentState.RESOLVED).exclude(pk=incident.pk)
    other = others.first()
    return AlertReason.REOPENED_MEANWHILE(incident=other.pk) if other else None


@transaction.atomic
def annotate(incident: Incident, by: str, note: str, now: datetime) -> None:
    """Add a note to the timeline of an incident in any state."""
    add_note(incident, by, note.strip(), now)
    _record(incident, by, "incident.note", note, incident.state)


@transaction.atomic
def assign(incident: Incident, was: str, to: str, by: str, note: str, now: datetime) -> None:
    """Assign an unresolved incident to the user `to`, or to nobody if it is empty.

    Args:
        was: The assignee that the caller saw, so that of two people at once the second one learns of the first.

    Raises:
        IncidentUnchanged: The incident is resolved, or has the assignee already, or somebody assigned it meanwhile.
    """
    if was == to or not assign_incident(incident, was, to, by, note.strip(), now):
        incident.refresh_from_db(fields=["state", "assigned_to"])
        if incident.state == IncidentState.RESOLVED:
            raise IncidentMovedOn(incident)
        taken = incident.assigned_to
        raise IncidentUnchanged(AlertReason.ALREADY_ASSIGNED(to=taken) if taken else AlertReason.ALREADY_UNASSIGNED())
    _record(incident, by, "incident.assign", note, incident.state, was=was, now=to)


def wake_due(now: datetime) -> CycleReport:
    """End the snoozes whose time is over."""
    due = Incident.objects.filter(state=IncidentState.SNOOZED, snoozed_until__lte=now).select_related("rule")
    woken = sum(_wake(incident, now) for incident in due)
    return CycleReport((WorkReason.SNOOZES_OVER(count=woken),) if woken else ())


@transaction.atomic
def _wake(incident: Incident, now: datetime) -> bool:
    return wake_incident(incident, now)


def _record(incident: Incident, by: str, action: str, note: str, before: str, **details: object) -> None:
    target = f"incident {incident.pk}: {incident.subject}"
    audit.record(by, action, target, note.strip(), before=before, after=incident.state, **details)
