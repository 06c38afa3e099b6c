"""What a person does to an incident."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from monitoring import audit
from monitoring.alerts.incidents import acknowledge_incident, resolve_incident
from monitoring.alerts.memory import dismiss
from monitoring.models import Incident


class IncidentMovedOn(Exception):
    """Someone, or the recovery itself, was faster; the message says what the incident's state is."""

    def __init__(self, incident: Incident) -> None:
        incident.refresh_from_db(fields=["state"])
        super().__init__(f"This incident is {incident.get_state_display().lower()} already.")


@transaction.atomic
def acknowledge(incident: Incident, by: str, note: str, now: datetime) -> None:
    if not acknowledge_incident(incident, by, note.strip(), now):
        raise IncidentMovedOn(incident)
    audit.record(by, "incident.acknowledge", f"incident {incident.pk}: {incident.subject}", note.strip())


@transaction.atomic
def resolve(incident: Incident, by: str, reason: str, now: datetime) -> None:
    """What opened it counts as dealt with: the rule opens anew only on what fails after `now`, or comes back."""
    if not resolve_incident(incident, reason.strip() or "closed by hand.", {}, now, by=by):
        raise IncidentMovedOn(incident)
    dismiss(incident, now)
    audit.record(by, "incident.resolve", f"incident {incident.pk}: {incident.subject}", reason.strip())
