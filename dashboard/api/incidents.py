"""Incidents, and the actions of people on them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require
from dashboard.access.roles import Role
from dashboard.api.errors import conflict
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.rows import IncidentDetailOut, IncidentOut
from dashboard.api.typed import Body, Span, checked, filled
from dashboard.forms.note import NoteForm, SnoozeForm, WrittenNoteForm
from dashboard.queries.incidents import IncidentFilter, find_incidents
from monitoring.alerts import lifecycle
from monitoring.models import Incident

routes = router("Incidents")


class IncidentsParams(PageParams):
    state: Literal["", "unresolved", "open", "acknowledged", "snoozed", "resolved"] = ""
    severity: Literal["", "warning", "critical"] = ""
    q: str = Field("", max_length=200, description="Part of the sentence, or of the name of the job or cluster.")
    hidden_by: int | None = Field(None, ge=1, lt=2**63, description="Incidents that this incident hides.")


class NoteIn(Body):
    note: str = ""


class SnoozeIn(NoteIn):
    snooze_for: Span = Field(3600, description="Seconds, or a text such as 2 h.")


@routes.get("/incidents", response=answers(Listed[IncidentOut]), summary="List incidents, newest first")
def incidents(request: HttpRequest, params: Query[IncidentsParams]) -> dict[str, Any]:
    query = {
        "state": params.state,
        "severity": params.severity,
        "q": params.q,
        "hidden_by": str(params.hidden_by or ""),
    }
    found = reach_at(request).narrow_either(find_incidents(IncidentFilter.read(query)))
    return page_of(found, params, ("-opened_at", "-id"))


@routes.get(
    "/incidents/{int:incident_id}", response=answers(IncidentDetailOut), summary="Get an incident with its timeline"
)
def incident(request: HttpRequest, incident_id: int) -> Incident:
    return _find(incident_id)


@routes.post(
    "/incidents/{int:incident_id}/acknowledge", response=answers(IncidentOut), summary="Acknowledge an incident"
)
def acknowledge(request: HttpRequest, incident_id: int, body: NoteIn | None = None) -> Incident:
    note = _checked_note(request, body)
    return _moved(incident_id, lambda found, now: lifecycle.acknowledge(found, actor_of(request), note, now))


@routes.post("/incidents/{int:incident_id}/resolve", response=answers(IncidentOut), summary="Resolve an incident")
def resolve(request: HttpRequest, incident_id: int, body: NoteIn | None = None) -> Incident:
    note = _checked_note(request, body)
    return _moved(incident_id, lambda found, now: lifecycle.resolve(found, actor_of(request), note, now))


@routes.post("/incidents/{int:incident_id}/reopen", response=answers(IncidentOut), summary="Reopen an incident")
def reopen(request: HttpRequest, incident_id: int, body: NoteIn | None = None) -> Incident:
    """Reopen a resolved incident. Waymark notifies its channels as of a new incident."""
    note = _checked_note(request, body)
    return _moved(incident_id, lambda found, now: lifecycle.reopen(found, actor_of(request), note, now))


@routes.post(
    "/incidents/{int:incident_id}/note", response=answers(IncidentDetailOut), summary="Add a note to an incident"
)
def add_note(request: HttpRequest, incident_id: int, body: NoteIn | None = None) -> Incident:
    note = _checked_note(request, body, WrittenNoteForm)
    return _moved(incident_id, lambda found, now: lifecycle.annotate(found, actor_of(request), note, now))


@routes.post("/incidents/{int:incident_id}/snooze", response=answers(IncidentOut), summary="Snooze an incident")
def snooze(request: HttpRequest, incident_id: int, body: SnoozeIn | None = None) -> Incident:
    require(request, Role.OPERATOR)
    typed = checked(SnoozeForm(filled(SnoozeForm(), body.given() if body else {}))).cleaned_data
    span = timedelta(seconds=int(typed["snooze_for"]))
    return _moved(
        incident_id, lambda found, now: lifecycle.snooze(found, now + span, actor_of(request), typed["note"], now)
    )


def _checked_note(request: HttpRequest, body: NoteIn | None, form: type[NoteForm] = NoteForm) -> str:
    require(request, Role.OPERATOR)
    return str(checked(form(filled(form(), body.given() if body else {}))).cleaned_data["note"])


def _moved(incident_id: int, act: Callable[[Incident, datetime], None]) -> Incident:
    try:
        act(_find(incident_id), timezone.now())
    except lifecycle.IncidentUnchanged as unchanged:
        raise conflict(unchanged) from unchanged
    return _find(incident_id)


def _find(incident_id: int) -> Incident:
    rows = Incident.objects.select_related("job", "cluster", "rule").prefetch_related("events")
    return rows.get(pk=incident_id)
