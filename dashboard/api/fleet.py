"""The fleet: all jobs with their health, actions for several jobs, and saved views."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import Field

from dashboard.access.guard import access_of, actor_of, reach_at, require_on_any
from dashboard.access.roles import Role
from dashboard.acts.bulk import act_on_all
from dashboard.acts.shown import ShownRun
from dashboard.api.errors import invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of, page_of_list
from dashboard.api.schemas.jobs import FleetOut, JobOut, job_out
from dashboard.api.schemas.rows import SavedViewOut
from dashboard.api.typed import Body, checked, filled
from dashboard.forms.bulk import MOST, BulkForm
from dashboard.forms.view import ViewForm
from dashboard.queries.facts import jobs_with_runs
from dashboard.queries.fleet import Selection, read_fleet, read_in_full, with_budgets
from monitoring.models import SavedView

routes = router("Fleet")


class JobsParams(PageParams):
    q: str = Field("", max_length=200, description="Part of the name of the job or cluster.")
    level: Literal["", "failing", "overdue", "degraded", "unknown", "healthy", "ended"] = ""
    cluster: str = Field("", max_length=100, description="The cluster's name.")
    labels: str = Field("", max_length=500, description="A label selector as in rules: `team=payments, env!=dev`.")


class DeedIn(Body):
    deed: Literal["savepoint", "stop", "label", "unlabel"] = Field(
        description="stop: stops with a savepoint. label, unlabel: adds or removes `labels`."
    )
    jobs: list[int] = Field(min_length=1, max_length=MOST, description="Job ids.")
    labels: dict[str, str] = {}
    run_ids: dict[int, int] = Field(
        {},
        description="By job id, the `run_id` that you saw. A job with another current run is not stopped.",
    )


class OutcomeOut(Schema):
    job_id: int
    job: str
    done: bool
    text: str = Field(description="The action in progress, or why nothing was done.")


class ViewIn(Body):
    name: str = Field(max_length=60, description="A view of the same name is replaced.")
    query: str = Field(
        max_length=1000, description="The filters as in the address of the fleet page: `state=failing&q=a`."
    )


@routes.get("/fleet", response=answers(FleetOut), summary="Get the number of jobs by level")
def fleet(request: HttpRequest) -> dict[str, Any]:
    found = read_fleet(Selection(), timezone.now(), reach_at(request))
    return {
        "jobs": found.known_jobs,
        "levels": {level.word: count for level, count in found.counts.items()},
        "silent_clusters": [cluster.name for cluster in found.silent_clusters],
        "last_answer_at": found.last_answer_at,
    }


@routes.get("/jobs", response=answers(Listed[JobOut]), summary="List jobs, the most urgent first")
def jobs(request: HttpRequest, params: Query[JobsParams]) -> dict[str, Any]:
    chosen = Selection(text=params.q, level=params.level, cluster=params.cluster, labels=params.labels)
    if chosen.problem:
        raise invalid("labels", params.labels, chosen.problem)
    now = timezone.now()
    found = read_fleet(chosen, now, reach_at(request))
    page = page_of_list(found.matching, params, lambda row: str(row.signs.pk))
    rows = with_budgets(read_in_full(page["items"], now, with_failures=True))
    return page | {"items": [job_out(row) for row in rows]}


@routes.post(
    "/jobs/act",
    response=answers(list[OutcomeOut]),
    summary="Apply an action to several jobs (each succeeds or fails on its own)",
)
def act(request: HttpRequest, body: DeedIn) -> list[dict[str, Any]]:
    require_on_any(request, Role.OPERATOR)
    offered = reach_at(request).narrow(jobs_with_runs())
    given = body.given() | {"confirmed": True}
    shown = {job_id: ShownRun(run_id) for job_id, run_id in given.pop("run_ids", {}).items()}
    form = checked(BulkForm(filled(BulkForm(offered=offered), given), offered=offered))
    outcomes = act_on_all(form.cleaned_data, access_of(request), actor_of(request), timezone.now(), shown)
    return [{"job_id": each.job.pk, "job": each.job.name, "done": each.done, "text": each.text} for each in outcomes]


@routes.get("/views", response=answers(Listed[SavedViewOut]), summary="List your saved views of the fleet")
def views(request: HttpRequest, params: Query[PageParams]) -> dict[str, Any]:
    return page_of(SavedView.objects.filter(user=request.user.pk or 0), params, ("name",))


@routes.post("/views", response=answers(SavedViewOut, 201), summary="Save a view")
def keep_view(request: HttpRequest, body: ViewIn) -> Status[SavedView]:
    form = checked(ViewForm(filled(ViewForm(user=request.user), body.given()), user=request.user))
    return Status(201, form.save())


@routes.post("/views/{int:view_id}/forget", response=answers(SavedViewOut), summary="Delete a saved view")
def forget_view(request: HttpRequest, view_id: int) -> SavedView:
    view = get_object_or_404(SavedView, pk=view_id, user=request.user.pk)
    SavedView.objects.filter(pk=view.pk).delete()
    return view
