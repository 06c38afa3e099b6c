"""What Waymark is doing and did last: audited acts, incidents' steps and restarts' steps, as one list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Q, Subquery
from django.urls import reverse

from monitoring.models import AuditEntry, IncidentEvent, RestartAttempt, RestartStep, StepState

# Incidents and restarts tell their own story, better than their audit entries do.
_TOLD_ELSEWHERE = Q(action__startswith="incident.") | Q(action__startswith="restart.")


@dataclass(frozen=True)
class Happening:
    at: datetime
    subject: str
    text: str
    url: str


def latest_happenings(limit: int = 6) -> list[Happening]:
    """Newest first; each source is read `limit` deep. A restart is one line: its newest step."""
    found = [*_incident_steps(limit), *_restart_steps(limit), *_audited(limit)]
    return sorted(found, key=lambda happening: happening.at, reverse=True)[:limit]


def _incident_steps(limit: int) -> list[Happening]:
    events = IncidentEvent.objects.select_related("incident__job").order_by("-at", "-id")[:limit]
    return [Happening(e.at, e.incident.job.name, e.text, reverse("incident", args=[e.incident_id])) for e in events]


def _restart_steps(limit: int) -> list[Happening]:
    newest = RestartStep.objects.filter(attempt=OuterRef("pk")).order_by("-started_at", "-id").values("pk")[:1]
    attempts = RestartAttempt.objects.order_by("-created_at", "-id").annotate(step=Subquery(newest))[:limit]
    ids = [attempt.step for attempt in attempts]
    steps = RestartStep.objects.select_related("attempt__job").filter(pk__in=ids)
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
        for entry in AuditEntry.objects.exclude(_TOLD_ELSEWHERE).order_by("-at", "-id")[:limit]
    ]
