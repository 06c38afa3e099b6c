"""Maintenance windows."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Status
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require, require_on_any
from dashboard.access.roles import Role
from dashboard.api.errors import conflict
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.rows import WindowOut
from dashboard.api.typed import Body, Moment, Span, checked, filled
from dashboard.forms.maintenance import MaintenanceForm
from dashboard.forms.permitted import offer_clusters
from dashboard.views.maintenance import require_on_window, visible_jobs
from monitoring.alerts.maintenance import WindowIsOver, end_window, plan_window
from monitoring.models import MaintenanceWindow

routes = router("Maintenance")


class WindowIn(Body):
    scope: Literal["job", "cluster", "selector"] = "job"
    job: str = Field("", description="The name of the job. If several clusters have a job of this name: cluster/job.")
    cluster: int | None = None
    selector: str = ""
    starts_at: Moment | None = Field(None, description="null: now.")
    lasts: Span = Field(3600, description="Seconds, or a text such as 2 h.")
    reason: str = Field(max_length=500)


@routes.get("/maintenance", response=answers(Listed[WindowOut]), summary="List maintenance windows, newest first")
def windows(request: HttpRequest, params: Query[PageParams]) -> dict[str, Any]:
    return page_of(reach_at(request).narrow_either(MaintenanceWindow.objects.all()), params, ("-starts_at", "-id"))


@routes.get("/maintenance/{int:window_id}", response=answers(WindowOut), summary="Get a maintenance window")
def window(request: HttpRequest, window_id: int) -> MaintenanceWindow:
    return MaintenanceWindow.objects.get(pk=window_id)


@routes.post("/maintenance", response=answers(WindowOut, 201), summary="Plan a maintenance window")
def plan(request: HttpRequest, body: WindowIn) -> Status[MaintenanceWindow]:
    require_on_any(request, Role.OPERATOR)
    jobs = visible_jobs(request)
    form = MaintenanceForm(filled(MaintenanceForm(jobs=jobs), body.given()), jobs=jobs)
    offer_clusters(form, reach_at(request))
    planned = checked(form).window(actor_of(request), timezone.now())
    require_on_window(request, planned)
    plan_window(planned)
    return Status(201, planned)


@routes.post(
    "/maintenance/{int:window_id}/end", response=answers(WindowOut), summary="End or cancel a maintenance window"
)
def end(request: HttpRequest, window_id: int) -> MaintenanceWindow:
    require(request, Role.OPERATOR)
    found = MaintenanceWindow.objects.select_related("job", "cluster").get(pk=window_id)
    try:
        end_window(found, actor_of(request), timezone.now())
    except WindowIsOver as over:
        raise conflict(over) from over
    return MaintenanceWindow.objects.get(pk=window_id)
