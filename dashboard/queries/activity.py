"""What Waymark is doing and did last: audited actions, incidents' steps and restarts' steps as one list of sentences."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from monitoring.models import AuditEntry, IncidentEvent, RestartStep, StepState


@dataclass(frozen=True)
class Happening:
    at: datetime
    subject: str
    text: str
    url: str


def latest_happenings(limit: int = 6) -> list[Happening]:
    """Newest first; each source is read `limit` deep."""
    found = [*_incident_steps(limit), *_restart_steps(limit), *_audited(limit)]
    return sorted(found, key=lambda happening: happening.at, reverse=True)[:limit]


def _incident_steps(limit: int) -> list[Happening]:
    events = IncidentEvent.objects.select_related("incident__job").order_by("-at", "-id")[:limit]
    return [
        Happening(e.at, e.incident.job.name, e.text, reverse("incident", args=[e.incident_id])) for e in events
    ]


def _restart_steps(limit: int) -> list[Happening]:
    steps = RestartStep.objects.select_related("attempt__job").order_by("-started_at", "-id")[:limit]
    return [
        Happening(
            step.ended_at or step.started_at,
            step.attempt.job.name,
            f"restart {step.attempt.epoch}: {step.name} – {step.text or StepState(step.state).label.lower()}",
            reverse("restart-progress", args=[step.attempt_id]),
        )
        for step in steps
    ]


def _audited(limit: int) -> list[Happening]:
    return [
        Happening(entry.at, entry.target, f"{entry.actor}: {entry.action}", reverse("audit"))
        for entry in AuditEntry.objects.order_by("-at", "-id")[:limit]
    ]
