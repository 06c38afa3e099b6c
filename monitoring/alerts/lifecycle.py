"""Acknowledge, snooze and resolve incidents for people, and end snoozes that are over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from django.db import transaction

from monitoring import audit
from monitoring.alerts.incidents import acknowledge_incident, resolve_incident, snooze_incident, wake_incident
from monitoring.alerts.memory import dismiss
from monitoring.models import Incident, IncidentState
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason


class IncidentMovedOn(Exception):
    """Raised if the incident's state has changed meanwhile; `reason` names the present state."""

    def __init__(self, incident: Incident) -> None:
        incident.refresh_from_db(fields=["state"])
        self.reason = _ALREADY[IncidentState(incident.state)]()
        super().__init__(str(self.reason))


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
