"""One job: its health, its runs, its configuration and its automation."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require
from dashboard.access.roles import Role
from dashboard.acts.canceling import CancelUnknown, NotCanceled, cancel_job
from dashboard.acts.job_settings import save_automation, save_retention
from dashboard.acts.shown import JobChanged
from dashboard.api.errors import UNKNOWN, ErrorOut, Refused, conflict
from dashboard.api.idempotency import intent_at
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.jobs import AutomationOut, ConfigurationOut, JobDetailOut, facts_out
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.schemas.rows import ExceptionOut, RunDetailOut, RunOut, SavepointOut
from dashboard.api.typed import Body, Moment, Span, WhyShownIn, checked, filled
from dashboard.forms.automation import AutomationForm
from dashboard.forms.retention import RetentionForm
from dashboard.health import judge
from dashboard.queries.changes import read_changes
from dashboard.queries.clusters import source_names
from dashboard.queries.facts import gather_facts
from dashboard.queries.series import Span as TimeRange
from dashboard.views.job import find_job
from monitoring.models import Job, ObjectiveBudget, Run, RunException, Savepoint
from monitoring.recovery.run_schedule import run_timetable
from monitoring.savepoints.retention_actions import verdicts
from monitoring.savepoints.schedule import timetable_of

routes = router("Jobs")


class AutomationIn(Body):
    auto_restart: bool = Field(False, description="Restart the job when it fails.")
    restore_from: str = Field(
        "newest", description="The snapshot to restore: newest, or savepoint for the newest savepoint."
    )
    max_restarts_per_hour: int = 6
    max_restarts_per_day: int = 24
    oldest_state_s: Span = None
    restart_on_lost: bool = True
    allow_empty_start: bool = False
    managed_elsewhere: str = ""
    automation_paused: bool = False
    automation_note: str = ""
    pause_lasts: Span = None
    labels: dict[str, str] = {}
    savepoint_schedule: str = Field("", description="For example 1 h, or 0 3 * * *. Empty: no schedule.")
    savepoint_quiet: str = Field("", description="Hours without scheduled savepoints, for example 22:00-06:00.")
    savepoint_time_zone: str = "UTC"
    run_schedule: str = Field(
        "", description="When the job is run again, for example 0 3 * * *. Empty: on request only."
    )
    run_time_zone: str = "UTC"


class RetentionIn(Body):
    savepoints_kept: int | None = None
    savepoints_kept_s: Span = None
    final_savepoints_kept: int | None = Field(10, description="Number of final savepoints to keep. null: all.")


class RetentionVerdictOut(SavepointOut):
    goes: bool = Field(description="Whether the retention would delete the savepoint now.")
    why: str
    why_value: ReasonJson


@routes.get("/jobs/{int:job_id}", response=answers(JobDetailOut), summary="Get a job")
def job(request: HttpRequest, job_id: int) -> dict[str, Any]:
    now = timezone.now()
    facts = gather_facts([find_job(job_id)], now)[0]
    out = facts_out(facts, judge(facts, now), ObjectiveBudget.objects.filter(job=job_id).first())
    return out | {"sources": source_names(facts.job, reach_at(request))}


@routes.get("/jobs/{int:job_id}/runs", response=answers(Listed[RunOut]), summary="List the runs of a job, newest first")
def runs(request: HttpRequest, job_id: int, params: Query[PageParams]) -> dict[str, Any]:
    return page_of(Run.objects.filter(job=job_id), params, ("-number",))


@routes.get("/runs/{int:run_id}", response=answers(RunDetailOut), summary="Get a run with its status changes")
def run(request: HttpRequest, run_id: int) -> Run:
    return Run.objects.prefetch_related("state_changes").get(pk=run_id)


@routes.get(
    "/jobs/{int:job_id}/exceptions",
    response=answers(Listed[ExceptionOut]),
    summary="List the exceptions of a job, newest first",
)
def exceptions(request: HttpRequest, job_id: int, params: Query[PageParams]) -> dict[str, Any]:
    return page_of(RunException.objects.filter(run__job=job_id), params, ("-at", "-id"))


class ChangeOut(Schema):
    at: datetime
    kind: Literal["program", "configuration", "parallelism", "run", "restart", "stop", "maintenance", "input_rate"]
    sentence: str


class ChangesParams(Schema):
    since: Moment | None = Field(None, description="null: the last day.")


@routes.get(
    "/jobs/{int:job_id}/changes",
    response=answers(list[ChangeOut]),
    summary="List the changes of a job since a time, at most 50, newest first",
)
def changes(request: HttpRequest, job_id: int, params: Query[ChangesParams]) -> list[dict[str, Any]]:
    now = timezone.now()
    found = read_changes(find_job(job_id), TimeRange(params.since or now - timedelta(days=1), now))
    return [{"at": each.at, "kind": each.kind.name.lower(), "sentence": each.sentence} for each in found]


@routes.get(
    "/jobs/{int:job_id}/configuration", response=answers(ConfigurationOut), summary="Get the configuration of a job"
)
def configuration(request: HttpRequest, job_id: int) -> dict[str, Any]:
    known = getattr(find_job(job_id), "configuration", None)
    return {"parts": known.parts if known else {}, "since": known.since if known else None}


@routes.get(
    "/jobs/{int:job_id}/automation", response=answers(AutomationOut), summary="Get the automation settings of a job"
)
def automation(request: HttpRequest, job_id: int) -> dict[str, Any]:
    return _automation(find_job(job_id))


@routes.patch(
    "/jobs/{int:job_id}/automation",
    response=answers(AutomationOut),
    summary="Change the automation settings or schedules of a job",
)
def change_automation(request: HttpRequest, job_id: int, body: AutomationIn) -> dict[str, Any]:
    require(request, Role.OPERATOR)
    data = filled(AutomationForm(instance=find_job(job_id)), body.given())
    form = checked(AutomationForm(data, instance=find_job(job_id)))
    save_automation(form, actor_of(request), timezone.now())
    return _automation(find_job(job_id))


@routes.patch("/jobs/{int:job_id}/retention", response=answers(AutomationOut), summary="Change the retention of a job")
def change_retention(request: HttpRequest, job_id: int, body: RetentionIn) -> dict[str, Any]:
    require(request, Role.OPERATOR)
    data = filled(RetentionForm(instance=find_job(job_id)), body.given())
    save_retention(checked(RetentionForm(data, instance=find_job(job_id))), actor_of(request))
    return _automation(find_job(job_id))


@routes.get(
    "/jobs/{int:job_id}/retention",
    response=answers(list[RetentionVerdictOut]),
    summary="Preview the savepoints that the retention would delete now",
)
def retention(request: HttpRequest, job_id: int) -> list[dict[str, Any]]:
    found = verdicts(find_job(job_id), timezone.now())
    rows = Savepoint.objects.in_bulk([verdict.held.key for verdict in found])
    return [
        SavepointOut.from_orm(rows[verdict.held.key]).model_dump()
        | {"goes": verdict.is_expired, "why": str(verdict.why), "why_value": verdict.why}
        for verdict in found
    ]


@routes.post(
    "/jobs/{int:job_id}/cancel",
    response=answers(RunOut, 202) | {UNKNOWN: ErrorOut},
    summary="Cancel a job without a savepoint (the state of the run shows when it has ended)",
)
def cancel(request: HttpRequest, job_id: int, body: WhyShownIn | None = None) -> Status[Run]:
    require(request, Role.OPERATOR)
    try:
        reason = body.reason.strip() if body else ""
        shown = body.shown if body else None
        return Status(202, cancel_job(find_job(job_id), actor_of(request), reason, intent_at(request), shown))
    except JobChanged as moved:
        raise conflict(f"Nothing was canceled. {moved}") from moved
    except NotCanceled as goes_on:
        raise conflict(goes_on) from goes_on
    except CancelUnknown as unknown:
        raise Refused(UNKNOWN, str(unknown)) from unknown


def _automation(found: Job) -> dict[str, Any]:
    values = ("automation_note_value", "breaker_reason_value", "run_problem_value")
    own = {name: getattr(found, name) for name in (*AutomationOut.Meta.fields, *values)}
    schedules = {"savepoint_schedule": str(timetable_of(found) or ""), "run_schedule": str(run_timetable(found) or "")}
    return own | schedules
