"""Objectives of jobs. The budget of each job is part of the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from ninja import ModelSchema, Query, Status
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require, require_on
from dashboard.access.roles import Role
from dashboard.acts.objectives import remove_objective, save_objective
from dashboard.api.errors import invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.typed import Body, Span, checked, filled
from dashboard.forms.objective import ObjectiveForm, new_objective
from dashboard.views.job import find_job
from monitoring.models import Objective

routes = router("Objectives")


class ObjectiveOut(ModelSchema):
    job_id: int | None = Field(description="null: all jobs, or the jobs that the selector chooses.")

    class Meta:
        model = Objective
        fields = ("id", "selector", "percent", "limit_ms", "days")


class ObjectiveFields(Body):
    selector: str = Field("", description="For example team=payments,env!=dev. Empty: all jobs.")
    percent: float = Field(99, description="The share of the checkpoints that must complete in time.")
    limit_ms: Span = Field(30_000, description="Milliseconds, or a text such as 30 s.")
    days: int = Field(30, description="Today and the UTC days before it.")


class ObjectiveIn(ObjectiveFields):
    job_id: int | None = Field(None, ge=1, lt=2**63, description="The job, if the objective is for one job only.")


@routes.get("/objectives", response=answers(Listed[ObjectiveOut]), summary="List objectives")
def objectives(request: HttpRequest, params: Query[PageParams]) -> dict[str, Any]:
    return page_of(reach_at(request).narrow_to_jobs_or_all(Objective.objects.all()), params, ("id",))


@routes.get("/objectives/{int:objective_id}", response=answers(ObjectiveOut), summary="Get an objective")
def objective(request: HttpRequest, objective_id: int) -> Objective:
    return _find(objective_id)


@routes.post("/objectives", response=answers(ObjectiveOut, 201), summary="Create an objective")
def add(request: HttpRequest, body: ObjectiveIn) -> Status[Objective]:
    job = find_job(body.job_id) if body.job_id is not None else None
    require_on(request, Role.OPERATOR, body.job_id, job.cluster_id if job else None)
    if job is not None and Objective.objects.filter(job=job).exists():
        raise invalid("job_id", body.job_id, "The job already has an objective.")
    given = {name: value for name, value in body.given().items() if name != "job_id"}
    return Status(201, _save(request, given, lambda: new_objective(job)))


@routes.patch("/objectives/{int:objective_id}", response=answers(ObjectiveOut), summary="Change an objective")
def change(request: HttpRequest, objective_id: int, body: ObjectiveFields) -> Objective:
    require(request, Role.OPERATOR)
    return _save(request, body.given(), lambda: _find(objective_id))


@routes.delete("/objectives/{int:objective_id}", response=answers(None, 204), summary="Delete an objective")
def remove(request: HttpRequest, objective_id: int) -> Status[None]:
    require(request, Role.OPERATOR)
    remove_objective(_find(objective_id), actor_of(request))
    return Status(204, None)


def _save(request: HttpRequest, given: dict[str, Any], create: Callable[[], Objective]) -> Objective:
    form = ObjectiveForm(create())
    if "selector" in given and "scope" in form.fields:
        given["scope"] = "selector" if given["selector"] else "everything"
    return save_objective(checked(ObjectiveForm(create(), filled(form, given))), actor_of(request))


def _find(objective_id: int) -> Objective:
    return Objective.objects.select_related("job__cluster").get(pk=objective_id)
