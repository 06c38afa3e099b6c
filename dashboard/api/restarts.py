"""Restarts, the decisions about failed jobs, and launch records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.datastructures import MultiValueDict
from ninja import File, Query, Schema, Status, UploadedFile
from pydantic import Field

from dashboard.access.guard import access_of, actor_of, reach_at, require
from dashboard.access.roles import Role
from dashboard.acts.launches import (
    NotStarted,
    launch_form,
    program_form,
    save_launch,
    start_through_operator,
    start_with_launch,
    upload,
)
from dashboard.acts.shown import JobChanged, check_shown_run
from dashboard.api.errors import FieldError, Refused, conflict, invalid, unavailable
from dashboard.api.idempotency import intent_at
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.schemas.rows import DecisionOut, LaunchVersionOut, RestartDetailOut, RestartOut
from dashboard.api.typed import Body, ShownIn, checked, filled
from dashboard.forms.launch import SAVE, ProgramForm, settings_text
from dashboard.queries.states import offered_snapshot, offered_snapshots, why_not_offered
from dashboard.views.job import find_job
from monitoring.engine.errors import EngineError
from monitoring.kubernetes.job_program import read_program
from monitoring.kubernetes.job_resources import JobResource, resource_of
from monitoring.masking import shown_launch
from monitoring.models import FoundResource, Job, LaunchVersion, RestartAttempt, RestartDecision
from monitoring.programs import copy_of
from monitoring.reasons.columns import columns
from monitoring.recovery.breaker import close_breaker
from monitoring.recovery.manual import (
    AttemptOpen,
    BadLaunch,
    RestartRefused,
    cancel_attempt,
    require_control,
    restart_from,
)
from monitoring.recovery.rows_written_again import QuerySink, Restores
from monitoring.recovery.run_again import run_again
from monitoring.savepoints.storage_threads import StorageSilent

routes = router("Restarts")


class RestartsParams(PageParams):
    state: Literal[
        "",
        "decided",
        "uploading",
        "importing",
        "validating",
        "stopping",
        "launching",
        "waiting",
        "succeeded",
        "failed",
        "canceled",
    ] = ""


class DecisionsParams(PageParams):
    verdict: Literal["", "restart", "leave", "person", "breaker"] = ""


WRITTEN_AGAIN = (
    "Queries that write the rows of batches after the snapshot a second time. Also empty if the engine does not report "
    "its sinks: Flink, and older job managers."
)


class QuerySinkOut(Schema):
    query: str
    sink: str = Field(description="The sink of the query.")


class StateOut(Schema):
    key: str = Field(
        description="The key to send with a restart. `stop`, for a running job: the savepoint that stops the job. It "
        "is not taken yet and has no path."
    )
    label: str
    taken_at: datetime
    size: int | None
    path: str
    note: str
    problem: str = Field(description="The problem with the files at the last check.")
    problem_value: ReasonJson
    found: bool = Field(
        description="A checkpoint in the directory of a failed run that no poll saw. `taken_at` is estimated from the "
        "interval, `size` from the referenced files."
    )
    written_again: list[QuerySinkOut] = Field(description=WRITTEN_AGAIN)


class RestartAskedOut(RestartOut):
    written_again: list[QuerySinkOut] = Field(description=WRITTEN_AGAIN)

    @staticmethod
    def resolve_written_again(attempt: RestartAttempt) -> tuple[QuerySink, ...]:
        return Restores(attempt.job).of(attempt.restore_path).queries


class RestartIn(ShownIn):
    state: str = Field(max_length=100, description="The `key` of one of the job's restart-states.")
    stop: Literal["savepoint", "cancel"] = Field("savepoint", description="How to stop the job if it is running.")


class CloseBreakerIn(Body):
    note: str = Field("", max_length=2000)


class LaunchOut(Schema):
    launch: dict[str, Any] | None = Field(description="The launch record. Values of secrets are hidden.")
    versions: list[LaunchVersionOut]


class LaunchIn(ShownIn):
    """All fields except `parallelism` are for administrators only."""

    kind: Literal["waymark", "flink-jar", "command"] = "waymark"
    jar_id: str = ""
    entry_class: str = ""
    program_args: list[str] = []
    configuration: dict[str, str] = Field({}, description="A value shown as hidden (…) keeps the stored value.")
    parallelism: int | None = None
    command: list[str] = []
    limit_s: int | None = Field(None, description="Time limit of the command in seconds, 5 to 1800. null: 120.")
    now: Literal["save", "replace", "clone"] = Field(
        "save", description="Save only, restart with it, or clone the job."
    )
    state: str = Field("", description="The snapshot: stop, or the key of a restart-state.")
    name: str = Field("", description="The name of the clone.")
    note: str = ""
    goes_back: bool = Field(True, description="Go back to the previous version if the new start fails.")
    version: int | None = Field(None, description="The version to start from. null: the current one.")


class ProgramOut(Schema):
    jar_id: str = Field(
        description="The id of the program on the cluster, for the `jar_id` of `launch` and of a new job."
    )
    name: str
    size: int = Field(description="Bytes.")
    sha256: str


class OperatorProgramOut(Schema):
    """The program in the FlinkDeployment or FlinkSessionJob of a job."""

    resource: str = Field(examples=["FlinkDeployment prod/orders"])
    image: str = Field(description="Empty: the resource has none.")
    jar_uri: str
    entry_class: str
    program_args: list[str] = Field(description="Values of secrets are hidden.")
    parallelism: int | None = Field(description="null: the default of the cluster.")


class OperatorProgramIn(ShownIn):
    """Fields that are left out stay as they are. All of the program except `parallelism` is for administrators only."""

    image: str = ""
    jar_uri: str = ""
    entry_class: str = ""
    program_args: list[str] = Field([], description="A value shown as hidden (…) stays as it is.")
    parallelism: int | None = None
    state: str = Field("", description="The snapshot: stop for the latest state, or the key of a restart-state.")
    note: str = ""
    goes_back: bool = Field(True, description="If the new job fails, change the resource back.")


class LaunchedOut(Schema):
    restart: RestartOut | None = Field(description="null: the launch record was only saved.")
    version: int | None = Field(description="The number of the saved version.")


@routes.get("/restarts", response=answers(Listed[RestartOut]), summary="List the restarts of all jobs, newest first")
def restarts(request: HttpRequest, params: Query[RestartsParams]) -> dict[str, Any]:
    return page_of(reach_at(request).narrow(_chosen(params), "job"), params, ("-created_at", "-id"))


@routes.get("/jobs/{int:job_id}/restarts", response=answers(Listed[RestartOut]), summary="List the restarts of a job")
def of_job(request: HttpRequest, job_id: int, params: Query[RestartsParams]) -> dict[str, Any]:
    return page_of(_chosen(params).filter(job=job_id), params, ("-created_at", "-id"))


@routes.get("/restarts/{int:restart_id}", response=answers(RestartDetailOut), summary="Get a restart with its steps")
def restart(request: HttpRequest, restart_id: int) -> RestartAttempt:
    return RestartAttempt.objects.prefetch_related("steps").get(pk=restart_id)


@routes.post(
    "/restarts/{int:restart_id}/cancel",
    response=answers(RestartOut),
    summary="Cancel a restart that has not stopped or started the job",
)
def cancel(request: HttpRequest, restart_id: int) -> RestartAttempt:
    require(request, Role.OPERATOR)
    found = RestartAttempt.objects.select_related("job").get(pk=restart_id)
    if not cancel_attempt(found, actor_of(request), timezone.now()):
        raise conflict("Too late to cancel: the job is already being stopped or started, or the restart has ended.")
    return RestartAttempt.objects.get(pk=restart_id)


@routes.get("/decisions", response=answers(Listed[DecisionOut]), summary="List the decisions about failed jobs")
def decisions(request: HttpRequest, params: Query[DecisionsParams]) -> dict[str, Any]:
    found = RestartDecision.objects.all()
    found = found.filter(verdict=params.verdict) if params.verdict else found
    return page_of(reach_at(request).narrow(found, "job"), params, ("-at", "-id"))


@routes.get(
    "/jobs/{int:job_id}/restart-states",
    response=answers(list[StateOut]),
    summary="List the snapshots that a job can start from",
)
def states(request: HttpRequest, response: HttpResponse, job_id: int) -> list[dict[str, Any]]:
    """If the storage does not respond in time, the list is incomplete.

    It then omits the checkpoints that only the storage knows, and the header `Waymark-Incomplete` gives the reason.
    """
    job = find_job(job_id)
    offer, restores = offered_snapshots(job), Restores(job)
    if offer.silent:
        response.headers["Waymark-Incomplete"] = quote(str(offer.silent), safe=" :/'(),.")
    return [
        vars(choice) | columns("problem", choice.problem) | {"written_again": restores.of(choice.path).queries}
        for choice in offer.choices
    ]


@routes.post(
    "/jobs/{int:job_id}/restart", response=answers(RestartAskedOut, 202), summary="Restart a job from a snapshot"
)
def start(request: HttpRequest, job_id: int, body: RestartIn) -> Status[RestartAttempt]:
    require(request, Role.OPERATOR)
    job = find_job(job_id)
    stop_first = body.stop == "savepoint"
    try:
        require_control(job)
        check_shown_run(job, body.shown, timezone.now())
        choice = offered_snapshot(job, body.state)
        if choice is None:
            raise invalid("state", body.state, f"{why_not_offered(job, body.state)} {_one_of(job)}")
        return Status(202, restart_from(job, choice.source, actor_of(request), timezone.now(), stop_first=stop_first))
    except StorageSilent as silent:
        raise conflict(f"Nothing was stopped or started. {silent}.") from silent
    except (JobChanged, RestartRefused, BadLaunch, AttemptOpen) as refused:
        raise conflict(refused, "Nothing was stopped or started.") from refused


@routes.post(
    "/jobs/{int:job_id}/run-again",
    response=answers(RestartAskedOut, 202),
    summary="Run an ended job again from its final state",
)
def again(request: HttpRequest, job_id: int, body: ShownIn | None = None) -> Status[RestartAttempt]:
    """The job uses the same program and settings. Returns 409 if it is running, or if its final state is unknown."""
    require(request, Role.OPERATOR)
    job = find_job(job_id)
    try:
        check_shown_run(job, body.shown if body else None, timezone.now())
        return Status(202, run_again(job, actor_of(request), timezone.now()))
    except (JobChanged, RestartRefused, BadLaunch, AttemptOpen) as refused:
        raise conflict(refused, "Nothing was started.") from refused


@routes.post(
    "/jobs/{int:job_id}/breaker/close", response=answers(DecisionOut | None), summary="Close the breaker of a job"
)
def close(request: HttpRequest, job_id: int, body: CloseBreakerIn | None = None) -> RestartDecision | None:
    require(request, Role.OPERATOR)
    note = body.note.strip() if body else ""
    if not close_breaker(find_job(job_id), note, actor_of(request), timezone.now()):
        raise conflict("The breaker is already closed.")
    return RestartDecision.objects.filter(job=job_id).first()


@routes.get(
    "/jobs/{int:job_id}/launch", response=answers(LaunchOut), summary="Get the launch record of a job with its versions"
)
def launch(request: HttpRequest, job_id: int) -> dict[str, Any]:
    job = find_job(job_id)
    versions = [_version(each) for each in job.launch_versions.all()[:200]]
    return {"launch": shown_launch(job.launch) if job.launch else None, "versions": versions}


@routes.post(
    "/jobs/{int:job_id}/launch", response=answers(LaunchedOut, 202), summary="Change the launch record of a job"
)
def change(request: HttpRequest, job_id: int, body: LaunchIn) -> Status[dict[str, Any]]:
    require(request, Role.OPERATOR)
    job, by, given = find_job(job_id), actor_of(request), body.given()
    number = given.pop("version", None)
    given.pop("run_id", None)
    version = job.launch_versions.filter(number=number).first() if number is not None else None
    if number is not None and version is None:
        raise invalid("version", number, "Send the number of a version of the launch record.")
    admin = access_of(request).may(Role.ADMIN)
    if isinstance(given.get("configuration"), dict):
        given["configuration"] = settings_text(given["configuration"])
    data = filled(launch_form(job, version, admin), {"now": SAVE} | given)
    form = checked(launch_form(job, version, admin, data))
    with _refusals():
        if form.cleaned_data["now"] == SAVE:
            return Status(202, {"restart": None, "version": save_launch(job, form, by).number})
        check_shown_run(job, body.shown, timezone.now())
        return Status(202, {"restart": start_with_launch(job, form, by), "version": None})


@routes.get(
    "/jobs/{int:job_id}/operator-program",
    response=answers(OperatorProgramOut),
    summary="Get the program of a job that the Flink operator runs",
)
def operator_program(request: HttpRequest, job_id: int) -> dict[str, Any]:
    """Waymark asks Kubernetes for it. Returns 409 if the operator does not run the job, 503 without an answer."""
    row = _operated(find_job(job_id))
    try:
        return {"resource": str(JobResource.of(row)), **shown_launch(read_program(row))}
    except EngineError as silent:
        raise unavailable(silent) from silent


@routes.post(
    "/jobs/{int:job_id}/operator-program",
    response=answers(RestartAskedOut, 202),
    summary="Let the Flink operator replace a job with a changed program",
)
def change_operator_program(request: HttpRequest, job_id: int, body: OperatorProgramIn) -> Status[RestartAttempt]:
    """Waymark changes the resource and requests the redeployment. Returns 409 if the operator does not run the job."""
    require(request, Role.OPERATOR)
    job, given, admin = find_job(job_id), body.given(), access_of(request).may(Role.ADMIN)
    given.pop("run_id", None)
    row = _operated(job)
    with _refusals():
        program = read_program(row)
        data = filled(program_form(job, row, program, admin), given)
        form = checked(program_form(job, row, program, admin, data))
        check_shown_run(job, body.shown, timezone.now())
        return Status(202, start_through_operator(job, form, actor_of(request)))


@contextmanager
def _refusals() -> Iterator[None]:
    """Answer with an error of the API if the job cannot be started with a changed program."""
    try:
        yield
    except EngineError as silent:
        raise unavailable(silent, "Nothing was stopped.") from silent
    except NotStarted as refused:
        raise Refused(422, fields=[FieldError(field=refused.field, value=None, message=str(refused))]) from refused
    except (JobChanged, AttemptOpen) as refused:
        raise conflict(refused, "Nothing was stopped.") from refused


def _operated(job: Job) -> FoundResource:
    row = resource_of(job)
    if row is None:
        raise conflict("The Flink operator does not run this job. Use POST …/launch.")
    return row


@routes.post(
    "/jobs/{int:job_id}/programs",
    response=answers(ProgramOut, 201),
    summary="Upload a program for the launch record of a job",
)
def upload_program(request: HttpRequest, job_id: int, program: File[UploadedFile]) -> Status[dict[str, Any]]:
    """Send a `.py`, `.zip` or `.whl` file, or a `.jar` for Flink, as the part `program` of multipart/form-data.

    Administrators only. The job keeps its program until `POST …/launch` starts it with the new `jar_id`.
    """
    require(request, Role.ADMIN)
    return uploaded(request, find_job(job_id), program)


def uploaded(request: HttpRequest, job: Job, program: UploadedFile) -> Status[dict[str, Any]]:
    """Upload a program to the cluster of the job, which may be new, and answer with the program."""
    sent = checked(ProgramForm({}, MultiValueDict({"program": [program]}), job=job)).cleaned_data["program"]
    try:
        jar_id = upload(job, sent.name, sent.read(), actor_of(request), intent_at(request))
    except NotStarted as refused:
        raise conflict(refused) from refused
    kept = copy_of(job.cluster, jar_id)
    if kept is None:
        raise RuntimeError(f"{jar_id} was uploaded, but Waymark has no copy of it")
    return Status(201, {"jar_id": jar_id, "name": kept.name, "size": kept.size, "sha256": kept.sha256})


def _one_of(job: Job) -> str:
    return f"One of: {', '.join(choice.key for choice in offered_snapshots(job).choices) or 'none is there'}."


def _version(version: LaunchVersion) -> dict[str, Any]:
    own = {name: getattr(version, name) for name in LaunchVersionOut.Meta.fields}
    return own | {"spec": shown_launch(version.spec)}


def _chosen(params: RestartsParams) -> Any:
    return RestartAttempt.objects.filter(state=params.state) if params.state else RestartAttempt.objects.all()
