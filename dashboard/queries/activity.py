"""The newest activity as one list: steps of incidents, restarts, savepoints, and changes that people made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Q, Subquery
from django.urls import reverse
from django.utils.translation import gettext as _

from dashboard.access.reach import FULL_REACH, Reach
from dashboard.audit_texts import action_text, actor_name, target_text
from dashboard.language import rendered, schedule_text
from monitoring.models import (
    AttemptState,
    AuditEntry,
    Incident,
    IncidentEvent,
    IncidentEventKind,
    RestartAttempt,
    RestartStep,
    Savepoint,
    SavepointOrigin,
    SavepointState,
    StepState,
)
from monitoring.reasons.columns import stored
from monitoring.savepoints.schedule import timetable_of
from monitoring.units import age_text, bytes_text, duration_text

# The list has lines for incidents, restarts and savepoints already, with more details than their audit entries.
_LISTED_ELSEWHERE = (
    Q(action__startswith="incident.")
    | Q(action__startswith="restart.")
    | Q(action__in=("savepoint.request", "savepoint.stop"))
)


@dataclass(frozen=True)
class ActivityItem:
    at: datetime
    subject: str
    text: str
    url: str


def latest_activity(limit: int = 5, reach: Reach = FULL_REACH) -> list[ActivityItem]:
    """Return the newest activity within `reach`, newest first.

    Each incident, restart and savepoint has one line with its present status. Entries of the audit log are included
    only if the reader may see every cluster, because the audit log covers all clusters.
    """
    # Savepoints are frequent: limit them to half of the list.
    found = [*_incident_steps(limit, reach), *_restart_steps(limit, reach), *_savepoints(limit // 2, reach)]
    if reach.is_unrestricted:
        found += _audit_entries(limit)
    return sorted(found, key=lambda item: item.at, reverse=True)[:limit]


def _incident_steps(limit: int, reach: Reach) -> list[ActivityItem]:
    newest = IncidentEvent.objects.filter(incident=OuterRef("pk")).order_by("-at", "-id").values("pk")[:1]
    seen = reach.narrow_either(Incident.objects.annotate(event=Subquery(newest)))
    ids = list(seen.order_by("-opened_at").values_list("event", flat=True)[: 2 * limit])
    if not ids:
        return []
    events = IncidentEvent.objects.select_related("incident__job", "incident__cluster").filter(pk__in=ids)
    return [_incident_step(event, event.incident.subject) for event in events]


def _incident_step(event: IncidentEvent, name: str) -> ActivityItem:
    return ActivityItem(event.at, name, _incident_text(event), reverse("incident", args=[event.incident_id]))


def _incident_text(event: IncidentEvent) -> str:
    text = without_name(rendered(stored(event, "text")), event.incident.subject)
    if event.kind != IncidentEventKind.RESOLVED or event.text_value is not None:
        return text
    return _("resolved: ") + text


def _restart_steps(limit: int, reach: Reach) -> list[ActivityItem]:
    newest = RestartStep.objects.filter(attempt=OuterRef("pk")).order_by("-started_at", "-id").values("pk")[:1]
    seen = reach.narrow(RestartAttempt.objects.annotate(step=Subquery(newest)), "job")
    ids = list(seen.order_by("-created_at", "-id").values_list("step", flat=True)[:limit])
    if not ids:
        return []
    steps = RestartStep.objects.select_related("attempt__job", "attempt__new_run").filter(pk__in=ids)
    return [
        ActivityItem(
            step.ended_at or step.started_at,
            step.attempt.job.name,
            restart_text(step),
            reverse("restart-progress", args=[step.attempt_id]),
        )
        for step in steps
    ]


def restart_text(newest: RestartStep) -> str:
    """Return how a restart ended, or its `newest` step if the restart has not ended."""
    attempt = newest.attempt
    if attempt.state == AttemptState.SUCCEEDED and attempt.ended_at:
        run = _(" as run %(number)s") % {"number": attempt.new_run.number} if attempt.new_run else ""
        took = age_text(attempt.ended_at - attempt.created_at)
        sentence = _("restart %(epoch)s (%(trigger)s): running again%(run)s, %(took)s after the decision")
        trigger = _(attempt.get_trigger_display())
        return sentence % {"epoch": attempt.epoch, "trigger": trigger, "run": run, "took": took}
    if attempt.state == AttemptState.FAILED:
        return _("restart %(epoch)s failed: %(error)s") % {
            "epoch": attempt.epoch,
            "error": rendered(stored(attempt, "error")),
        }
    text = rendered(stored(newest, "text")) or _(StepState(newest.state).label).lower()
    where = {"epoch": attempt.epoch, "name": _step_name(newest.name), "text": text}
    return _("restart %(epoch)s: %(name)s – %(text)s") % where


def _step_name(name: str) -> str:
    """Translate the name of a step. The names of stages are in the catalogue with a capital letter."""
    alone = name[:1].upper() + name[1:]
    return named if (named := _(alone)) != alone else name


def _savepoints(limit: int, reach: Reach) -> list[ActivityItem]:
    seen = reach.narrow(Savepoint.objects.select_related("job", "checkpoint"), "job")
    newest = seen.order_by("-requested_at", "-id")[:limit]
    return [
        ActivityItem(
            s.completed_at or s.requested_at, s.job.name, savepoint_text(s), reverse("job-savepoints", args=[s.job_id])
        )
        for s in newest
    ]


def savepoint_text(savepoint: Savepoint) -> str:
    """Return a line such as `savepoint 24 completed: 75.5 KB in 3.01 s (schedule)`."""
    number = f" {savepoint.checkpoint.checkpoint_id}" if savepoint.checkpoint else ""
    why = f" ({_origin_text(savepoint)})"
    stops = _(", stops the job") if savepoint.stops_job else ""
    if savepoint.state == SavepointState.COMPLETED and savepoint.took_ms is not None:
        text = _("savepoint%(number)s completed: %(size)s in %(took)s")
        figures = {"number": number, "size": bytes_text(savepoint.size), "took": duration_text(savepoint.took_ms)}
        return text % figures + why + stops
    text = _(SavepointState(savepoint.state).label).lower()
    cause = f": {rendered(stored(savepoint, 'failure')).strip().partition(chr(10))[0]}" if savepoint.failure else ""
    return _("savepoint%(number)s %(state)s") % {"number": number, "state": text} + why + stops + cause


def _origin_text(savepoint: Savepoint) -> str:
    if savepoint.origin == SavepointOrigin.MANUAL and savepoint.requested_by:
        return _("requested by %(name)s") % {"name": actor_name(savepoint.requested_by)}
    if savepoint.origin == SavepointOrigin.SCHEDULED and (timetable := timetable_of(savepoint.job)):
        return _("scheduled %(times)s") % {"times": schedule_text(timetable)}
    return _(SavepointOrigin(savepoint.origin).label)


def without_name(text: str, name: str) -> str:
    """Shorten `3 checkpoints of X failed` to `3 checkpoints failed`, for a line that names X already.

    The catalogue says how a sentence names X: “…” is any other text.
    """
    around = [re.escape(part % {"name": name}) for part in _("… of %(name)s…").split("…")]
    found = re.fullmatch("(.*?)".join(around), text, re.DOTALL)
    return "".join(found.groups()) if found else text


def _audit_entries(limit: int) -> list[ActivityItem]:
    return [
        ActivityItem(entry.at, target_text(entry), f"{actor_name(entry.actor)} {action_text(entry)}", reverse("audit"))
        for entry in AuditEntry.objects.exclude(_LISTED_ELSEWHERE).order_by("-at", "-id")[:limit]
    ]
