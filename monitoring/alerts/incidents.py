"""An incident's steps. Each is a row with its evidence, and the outbox is written in the same transaction.

Callers hold a transaction. People are told of OPENED and RESOLVED; a CHANGED count is on the timeline only, so that a
job that goes on failing sends one message, not one per checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from monitoring.alerts.notify import outbox
from monitoring.durations import in_words
from monitoring.models import (
    AlertRule,
    Incident,
    IncidentEvent,
    IncidentEventKind,
    IncidentKind,
    IncidentState,
    Job,
    Severity,
)

NOTIFIED = (IncidentEventKind.OPENED, IncidentEventKind.RESOLVED)


def open_incident(
    job: Job,
    rule: AlertRule | None,
    kind: IncidentKind,
    severity: Severity,
    sentence: str,
    evidence: Mapping[str, object],
    now: datetime,
) -> Incident:
    """The database refuses a second unresolved one (IntegrityError)."""
    incident = Incident.objects.create(
        rule=rule, job=job, kind=kind, severity=severity, sentence=sentence, opened_at=now
    )
    _step(incident, IncidentEventKind.OPENED, sentence, evidence, now)
    return incident


def change_incident(incident: Incident, sentence: str, evidence: Mapping[str, object], now: datetime) -> None:
    incident.sentence = sentence
    incident.save(update_fields=["sentence"])
    _step(incident, IncidentEventKind.CHANGED, sentence, evidence, now)


def resolve_incident(incident: Incident, why: str, evidence: Mapping[str, object], now: datetime, by: str = "") -> bool:
    """False: it was resolved already. `by` is empty when the trouble itself went away."""
    updated = (
        Incident.objects.filter(pk=incident.pk)
        .exclude(state=IncidentState.RESOLVED)
        .update(state=IncidentState.RESOLVED, resolved_at=now, resolved_by=by)
    )
    if not updated:
        return False
    incident.refresh_from_db(fields=["state", "resolved_at", "resolved_by"])
    text = f"Resolved after {in_words(now - incident.opened_at)}{f' by {by}' if by else ''}: {why}"
    _step(incident, IncidentEventKind.RESOLVED, text, evidence, now)
    return True


def acknowledge_incident(incident: Incident, by: str, note: str, now: datetime) -> bool:
    """False: it is not open any more."""
    updated = Incident.objects.filter(pk=incident.pk, state=IncidentState.OPEN).update(
        state=IncidentState.ACKNOWLEDGED, acknowledged_at=now, acknowledged_by=by
    )
    if not updated:
        return False
    incident.refresh_from_db(fields=["state", "acknowledged_at", "acknowledged_by"])
    _step(incident, IncidentEventKind.ACKNOWLEDGED, f"Acknowledged by {by}{f': {note}' if note else '.'}", {}, now)
    return True


def _step(
    incident: Incident, kind: IncidentEventKind, text: str, evidence: Mapping[str, object], now: datetime
) -> None:
    event = IncidentEvent.objects.create(incident=incident, at=now, kind=kind, text=text, evidence=dict(evidence))
    if kind in NOTIFIED:
        outbox.write(event, now)
