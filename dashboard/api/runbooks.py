"""Runbooks for jobs by label."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import ModelSchema, Query, Status
from pydantic import Field

from dashboard.access.guard import actor_of, require
from dashboard.access.roles import Role
from dashboard.acts.runbooks import remove_runbook, save_runbook
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.typed import Body, checked, filled
from dashboard.forms.runbook import RunbookForm
from monitoring.models import Runbook

routes = router("Rules")


class RunbookOut(ModelSchema):
    class Meta:
        model = Runbook
        fields = ("id", "selector", "text")


class RunbookFields(Body):
    selector: str = Field("", description="The labels of the jobs, for example team=payments,env!=dev.")
    text: str = Field("", description="A URL, or what to do at an incident of these jobs.")


@routes.get("/runbooks", response=answers(Listed[RunbookOut]), summary="List runbooks")
def runbooks(request: HttpRequest, params: Query[PageParams]) -> dict[str, Any]:
    return page_of(Runbook.objects.all(), params, ("id",))


@routes.get("/runbooks/{int:runbook_id}", response=answers(RunbookOut), summary="Get a runbook")
def runbook(request: HttpRequest, runbook_id: int) -> Runbook:
    return _find(runbook_id)


@routes.post("/runbooks", response=answers(RunbookOut, 201), summary="Create a runbook")
def add(request: HttpRequest, body: RunbookFields) -> Status[Runbook]:
    return Status(201, _save(request, Runbook(), body))


@routes.patch("/runbooks/{int:runbook_id}", response=answers(RunbookOut), summary="Change a runbook")
def change(request: HttpRequest, runbook_id: int, body: RunbookFields) -> Runbook:
    return _save(request, _find(runbook_id), body)


@routes.delete("/runbooks/{int:runbook_id}", response=answers(None, 204), summary="Delete a runbook")
def remove(request: HttpRequest, runbook_id: int) -> Status[None]:
    require(request, Role.OPERATOR)
    remove_runbook(_find(runbook_id), actor_of(request))
    return Status(204, None)


def _find(runbook_id: int) -> Runbook:
    return get_object_or_404(Runbook, pk=runbook_id)


def _save(request: HttpRequest, found: Runbook, body: RunbookFields) -> Runbook:
    require(request, Role.OPERATOR)
    data = filled(RunbookForm(found), body.given())
    return save_runbook(checked(RunbookForm(found, data)), actor_of(request))
