"""Pauses of the automation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Status
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require, require_on
from dashboard.access.roles import Role
from dashboard.api.errors import conflict, invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.rows import PauseOut
from dashboard.api.typed import Body, Span, checked, filled
from dashboard.forms.automation import PauseForm
from monitoring import pauses as doing
from monitoring.models import AutomationPause

routes = router("Automation")


class PausesParams(PageParams):
    active: bool | None = Field(None, description="true: active pauses. false: pauses that have ended.")


class PauseIn(Body):
    cluster: int | None = Field(None, description="null: all clusters.")
    lasts: Span = Field(None, description="Seconds, or a text such as 2 h. null: until somebody ends the pause.")
    reason: str = Field(max_length=500)


@routes.get("/pauses", response=answers(Listed[PauseOut]), summary="List pauses, newest first")
def pauses(request: HttpRequest, params: Query[PausesParams]) -> dict[str, Any]:
    holding = doing.active(timezone.now())
    found = reach_at(request).narrow_to_clusters_or_all(AutomationPause.objects.all())
    if params.active is not None:
        held = Q(pk__in=holding.values("pk"))
        found = found.filter(held if params.active else ~held)
    return page_of(found, params, ("-started_at", "-id"))


@routes.get("/pauses/{int:pause_id}", response=answers(PauseOut), summary="Get a pause")
def one(request: HttpRequest, pause_id: int) -> AutomationPause:
    return AutomationPause.objects.get(pk=pause_id)


@routes.post("/pauses", response=answers(PauseOut, 201), summary="Pause the automation of all clusters or of one")
def pause(request: HttpRequest, body: PauseIn) -> Status[AutomationPause]:
    require_on(request, Role.OPERATOR, None, body.cluster)
    typed, now = checked(PauseForm(filled(PauseForm(), body.given()))).cleaned_data, timezone.now()
    until = None if typed["lasts"] is None else now + timedelta(seconds=typed["lasts"])
    try:
        return Status(201, doing.pause(typed["cluster"], typed["reason"], until, actor_of(request), now))
    except doing.BadPause as problem:
        raise invalid(problem.field, None, str(problem.allowed)) from problem


@routes.post("/pauses/{int:pause_id}/end", response=answers(PauseOut), summary="End a pause")
def end(request: HttpRequest, pause_id: int) -> AutomationPause:
    require(request, Role.OPERATOR)
    found = AutomationPause.objects.select_related("cluster").get(pk=pause_id)
    if not doing.end(found, actor_of(request), timezone.now()):
        raise conflict("This pause has already ended.")
    return AutomationPause.objects.get(pk=pause_id)
