"""Open, change, resolve and reopen incidents. Each step is a row; its notifications are stored in the same transaction.

Callers hold a transaction. Every step takes many incidents at once: ten thousand jobs may fail in one minute. OPENED,
REOPENED and RESOLVED notify people. CHANGED only updates one row of the timeline, so that a job that keeps failing
sends one message and has one line, not one per check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from monitoring import bulk
from monitoring.alerts import inhibition, outbox
from monitoring.models import (
    AlertRule,
    Cluster,
    Incident,
    IncidentEvent,
    IncidentEventKind,
    IncidentKind,
    IncidentState,
    Job,
    Severity,
)
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.columns import columns, store, stored
from monitoring.reasons.reason import Reason

BATCH = 1000


@dataclass(frozen=True)
class Opening:
    """An incident to open: about `job`, else about `cluster`, else about Waymark itself.

    `at`: when the problem began, if that was earlier than now.
    """

    kind: str
    severity: Severity
    finding: Reason | str
    evidence: Mapping[str, object] = field(default_factory=dict)
    rule: AlertRule | None = None
    job: Job | None = None
    cluster: Cluster | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Change:
    """The new finding and evidence of an unresolved incident."""

    incident: Incident
    finding: Reason | str
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Ending:
    """The end of an incident.

    `reason` is the text of the last event. `by` is empty if the problem ended by itself; `at` is when it ended.
    """

    incident: Incident
    reason: Reason | str
    evidence: Mapping[str, object] = field(default_factory=dict)
    by: str = ""
    at: datetime | None = None


def open_incidents(openings: Sequence[Opening], now: datetime) -> list[Incident]:
    """Open incidents. The database refuses a second unresolved one of the same rule and subject (IntegrityError)."""
    hidden = inhibition.inhibitors([each.job.cluster_id for each in openings if each.job])
    incidents = [_opened(each, hidden, now) for each in openings]
    bulk.insert(incidents)
    events = _steps(
        IncidentEventKind.OPENED,
        [(incident, each.finding, each.evidence) for incident, each in zip(incidents, openings, strict=True)],
        now,
    )
    for incident in incidents:
        inhibition.take_effect(incident, now)
    outbox.write(events, now)
    return incidents


def change_incidents(changes: Sequence[Change], now: datetime) -> None:
    for each in changes:
        store(each.incident, "sentence", each.finding)
    fields = ["sentence", "sentence_value"]
    Incident.objects.bulk_update([each.incident for each in changes], fields, batch_size=BATCH)
    newest = _newest_events([each.incident for each in changes])
    again = [(each, last) for each in changes if (last := newest.get(each.incident.pk)) and _is_change(last)]
    _fold(again, now)
    folded = {each.incident.pk for each, _ in again}
    first = [(each.incident, each.finding, each.evidence) for each in changes if each.incident.pk not in folded]
    _steps(IncidentEventKind.CHANGED, first, now)


def resolve_incidents(endings: Sequence[Ending], now: datetime) -> list[Incident]:
    """Resolve incidents, and return those that were not yet resolved."""
    unresolved = Incident.objects.filter(pk__in=[each.incident.pk for each in endings])
    still = set(
        unresolved.exclude(state=IncidentState.RESOLVED).order_by("pk").select_for_update().values_list("pk", flat=True)
    )
    over = [each for each in endings if each.incident.pk in still]
    for at, by, incidents in _alike((each.at or now, each.by, each.incident) for each in over):
        end = {"state": IncidentState.RESOLVED, "resolved_at": at, "resolved_by": by, "snoozed_until": None}
        Incident.objects.filter(pk__in=[each.pk for each in incidents]).update(**end)
        for incident in incidents:
            incident.state, incident.resolved_at, incident.resolved_by = IncidentState.RESOLVED, at, by
    resolved = [each.incident for each in over]
    events = _steps(IncidentEventKind.RESOLVED, [(each.incident, each.reason, each.evidence) for each in over], now)
    outbox.release([left for incident in resolved for left in inhibition.end(incident, now)], now)
    outbox.write(events, now)
    return resolved


def open_incident(
    job: Job,
    rule: AlertRule | None,
    kind: IncidentKind,
    severity: Severity,
    finding: Reason | str,
    evidence: Mapping[str, object],
    now: datetime,
) -> Incident:
    (incident,) = open_incidents([Opening(kind, severity, finding, evidence, rule, job)], now)
    return incident


def change_incident(incident: Incident, finding: Reason | str, evidence: Mapping[str, object], now: datetime) -> None:
    change_incidents([Change(incident, finding, evidence)], now)


def resolve_incident(
    incident: Incident, why: Reason | str, evidence: Mapping[str, object], now: datetime, by: str = ""
) -> bool:
    """Resolve the incident; return False if it was already resolved. `why` is "" if the person `by` gave no reason."""
    lasted = now - incident.opened_at
    if not by:
        reason = AlertReason.RESOLVED(lasted=lasted, why=why)
    elif why:
        reason = AlertReason.RESOLVED_BY(lasted=lasted, by=by, why=why)
    else:
        reason = AlertReason.CLOSED_BY_HAND(lasted=lasted, by=by)
    return bool(resolve_incidents([Ending(incident, reason, evidence, by)], now))


def acknowledge_incident(incident: Incident, by: str, note: str, now: datetime) -> bool:
    """Acknowledge the incident; return False if it is neither open nor snoozed."""
    states = (IncidentState.OPEN, IncidentState.SNOOZED)
    changes = {
        "state": IncidentState.ACKNOWLEDGED,
        "acknowledged_at": now,
        "acknowledged_by": by,
        "snoozed_until": None,
    }
    if not _move(incident, states, changes):
        return False
    said = AlertReason.ACKNOWLEDGED_NOTE(by=by, note=note) if note else AlertReason.ACKNOWLEDGED(by=by)
    _steps(IncidentEventKind.ACKNOWLEDGED, [(incident, said, {})], now)
    return True


def snooze_incident(incident: Incident, until: datetime, by: str, note: str, now: datetime) -> bool:
    """Send no notifications before `until`, and then notify the rule's channels. Return False if it is resolved."""
    states = (IncidentState.OPEN, IncidentState.ACKNOWLEDGED, IncidentState.SNOOZED)
    if not _move(incident, states, {"state": IncidentState.SNOOZED, "snoozed_until": until}):
        return False
    snoozed = {"length": until - now, "by": by}
    said = AlertReason.SNOOZED_NOTE(**snoozed, note=note) if note else AlertReason.SNOOZED(**snoozed)
    _steps(IncidentEventKind.SNOOZED, [(incident, said, {"until": until.isoformat()})], now)
    return True


def wake_incident(incident: Incident, now: datetime) -> bool:
    """End the incident's snooze and notify its channels; return False if it is no longer snoozed."""
    awake = IncidentState.ACKNOWLEDGED if incident.acknowledged_at else IncidentState.OPEN
    if not _move(incident, (IncidentState.SNOOZED,), {"state": awake, "snoozed_until": None}):
        return False
    woken = AlertReason.WOKEN(finding=stored(incident, "sentence"))
    events = _steps(IncidentEventKind.WOKEN, [(incident, woken, {})], now)
    outbox.write(events, now)
    return True


def add_note(incident: Incident, by: str, note: str, now: datetime) -> None:
    _steps(IncidentEventKind.NOTE, [(incident, AlertReason.NOTE(by=by, note=note), {})], now)


def reopen_incident(incident: Incident, by: str, note: str, now: datetime) -> bool:
    """Reopen the incident and notify as if it had just opened. Return False if it is not resolved.

    Raises:
        IntegrityError: Its rule and subject have another unresolved incident.
    """
    hidden = inhibition.inhibitors([incident.cluster_id] if incident.job_id and incident.cluster_id else [])
    changes = {
        "state": IncidentState.OPEN,
        "acknowledged_at": None,
        "acknowledged_by": "",
        "snoozed_until": None,
        "resolved_at": None,
        "resolved_by": "",
        "inhibited_by": hidden.get(incident.cluster_id or 0),
    }
    if not _move(incident, (IncidentState.RESOLVED,), changes):
        return False
    reason = AlertReason.REOPENED_NOTE(by=by, note=note) if note else AlertReason.REOPENED(by=by)
    events = _steps(IncidentEventKind.REOPENED, [(incident, reason, {})], now)
    inhibition.take_effect(incident, now)
    outbox.write(events, now)
    return True


def _opened(opening: Opening, hidden: Mapping[int, Incident], now: datetime) -> Incident:
    job, cluster = opening.job, opening.cluster
    return Incident(
        rule=opening.rule,
        job=job,
        cluster_id=job.cluster_id if job else cluster.pk if cluster else None,
        kind=opening.kind,
        severity=opening.severity,
        **columns("sentence", opening.finding),
        opened_at=opening.at or now,
        inhibited_by=hidden.get(job.cluster_id) if job else None,
    )


def _alike(ends: Iterable[tuple[datetime, str, Incident]]) -> list[tuple[datetime, str, list[Incident]]]:
    """Group incidents that end at the same time by the same person, so that one statement updates thousands."""
    found: dict[tuple[datetime, str], list[Incident]] = {}
    for at, by, incident in ends:
        found.setdefault((at, by), []).append(incident)
    return [(at, by, incidents) for (at, by), incidents in found.items()]


def _newest_events(incidents: Iterable[Incident]) -> dict[int, IncidentEvent]:
    events = IncidentEvent.objects.filter(incident__in=[each.pk for each in incidents])
    newest = events.order_by("incident_id", "-at", "-id").distinct("incident_id")
    return {event.incident_id: event for event in newest}


def _is_change(event: IncidentEvent) -> bool:
    return event.kind == IncidentEventKind.CHANGED


def _fold(again: Sequence[tuple[Change, IncidentEvent]], now: datetime) -> None:
    for each, last in again:
        last.first_at = last.first_at or last.at
        last.at, last.evidence, last.times = now, dict(each.evidence), last.times + 1
        store(last, "text", each.finding)
    fields = ["first_at", "at", "text", "text_value", "evidence", "times"]
    IncidentEvent.objects.bulk_update([last for _, last in again], fields, batch_size=BATCH)


def _move(incident: Incident, states: Sequence[IncidentState], changes: Mapping[str, object]) -> bool:
    """Change the incident only if it is in one of `states`; return whether it was."""
    if not Incident.objects.filter(pk=incident.pk, state__in=states).update(**changes):
        return False
    incident.refresh_from_db(fields=list(changes))
    return True


def _steps(
    kind: IncidentEventKind, steps: Iterable[tuple[Incident, Reason | str, Mapping[str, object]]], now: datetime
) -> list[IncidentEvent]:
    events = [
        IncidentEvent(incident=incident, at=now, kind=kind, evidence=dict(evidence), **columns("text", reason))
        for incident, reason, evidence in steps
    ]
    bulk.insert(events)
    return events
