"""Savepoints: list, take, pin and delete them."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Status
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require
from dashboard.access.roles import Role
from dashboard.acts.shown import JobChanged, ShownRun, check_shown_run
from dashboard.api.errors import Refused, conflict, invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.rows import SavepointOut
from dashboard.api.typed import Body, ShownIn, WhyIn, checked, filled
from dashboard.forms.retention import KeepForm
from dashboard.views.job import find_job
from monitoring.models import Savepoint, SavepointOrigin
from monitoring.savepoints.request import SavepointDeferred, request_savepoint
from monitoring.savepoints.retention_actions import BadNote, NotDisposable, NotPinned, dispose, pin

routes = router("Savepoints")
_ORDER = ("-requested_at", "-id")


class SavepointsParams(PageParams):
    state: Literal["", "deferred", "requested", "in_progress", "completed", "failed", "disposing", "disposed"] = ""
    origin: Literal["", "scheduled", "manual", "restart", "adopted"] = ""


class KeepIn(Body):
    pinned: bool = Field(False, description="true: the retention never deletes the savepoint.")
    note: str = ""


@routes.get(
    "/savepoints", response=answers(Listed[SavepointOut]), summary="List the savepoints of all jobs, newest first"
)
def savepoints(request: HttpRequest, params: Query[SavepointsParams]) -> dict[str, Any]:
    return page_of(reach_at(request).narrow(_chosen(params), "job"), params, _ORDER)


@routes.get(
    "/jobs/{int:job_id}/savepoints", response=answers(Listed[SavepointOut]), summary="List the savepoints of a job"
)
def of_job(request: HttpRequest, job_id: int, params: Query[SavepointsParams]) -> dict[str, Any]:
    return page_of(_chosen(params).filter(job=job_id), params, _ORDER)


@routes.post("/jobs/{int:job_id}/savepoints", response=answers(SavepointOut, 202), summary="Take a savepoint")
def take(request: HttpRequest, job_id: int) -> Status[Savepoint]:
    return Status(202, _request(request, job_id, None, stops_job=False))


@routes.post("/jobs/{int:job_id}/stop", response=answers(SavepointOut, 202), summary="Stop a job with a savepoint")
def stop(request: HttpRequest, job_id: int, body: ShownIn | None = None) -> Status[Savepoint]:
    return Status(202, _request(request, job_id, body.shown if body else None, stops_job=True))


@routes.get("/savepoints/{int:savepoint_id}", response=answers(SavepointOut), summary="Get a savepoint")
def savepoint(request: HttpRequest, savepoint_id: int) -> Savepoint:
    return Savepoint.objects.get(pk=savepoint_id)


@routes.patch(
    "/savepoints/{int:savepoint_id}", response=answers(SavepointOut), summary="Pin a savepoint, or change its note"
)
def keep(request: HttpRequest, savepoint_id: int, body: KeepIn) -> Savepoint:
    require(request, Role.OPERATOR)
    found = Savepoint.objects.select_related("job").get(pk=savepoint_id)
    data = filled(KeepForm(instance=Savepoint.objects.get(pk=savepoint_id)), body.given())
    form = checked(KeepForm(data, instance=Savepoint.objects.get(pk=savepoint_id)))
    try:
        pin(found, form.cleaned_data["pinned"], form.cleaned_data["note"], actor_of(request))
    except BadNote as problem:
        raise invalid("note", None, str(problem)) from problem
    except NotPinned as too_late:
        raise conflict(too_late) from too_late
    return Savepoint.objects.get(pk=savepoint_id)


@routes.post(
    "/savepoints/{int:savepoint_id}/dispose",
    response=answers(SavepointOut, 202),
    summary="Delete the files of a savepoint",
)
def dispose_of(request: HttpRequest, savepoint_id: int, body: WhyIn | None = None) -> Status[Savepoint]:
    require(request, Role.OPERATOR)
    found = Savepoint.objects.select_related("job").get(pk=savepoint_id)
    reason = body.reason.strip() if body else ""
    try:
        dispose(found, reason, actor_of(request), timezone.now())
    except NotDisposable as stays:
        raise conflict(stays) from stays
    return Status(202, Savepoint.objects.get(pk=savepoint_id))


def _request(request: HttpRequest, job_id: int, shown: ShownRun | None, *, stops_job: bool) -> Savepoint:
    require(request, Role.OPERATOR)
    job, now = find_job(job_id), timezone.now()
    try:
        check_shown_run(job, shown, now)
        return request_savepoint(job, SavepointOrigin.MANUAL, actor_of(request), now, stops_job=stops_job)
    except JobChanged as moved:
        raise conflict(f"Nothing was stopped. {moved}") from moved
    except SavepointDeferred as deferred:
        raise Refused(409, str(deferred)) from deferred


def _chosen(params: SavepointsParams) -> Any:
    found = Savepoint.objects.all()
    found = found.filter(state=params.state) if params.state else found
    return found.filter(origin=params.origin) if params.origin else found
