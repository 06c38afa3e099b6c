"""Submit new jobs to Waymark's job manager."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.http import HttpRequest
from ninja import File, Schema, Status, UploadedFile
from pydantic import Field

from dashboard.access.guard import actor_of, require
from dashboard.access.roles import Role
from dashboard.acts.launches import NotStarted
from dashboard.acts.submitting import (
    check_savepoint,
    check_usable,
    find_checkpoints_at,
    submit_job,
    validate_savepoint_at,
)
from dashboard.api.errors import FieldError, Refused, conflict
from dashboard.api.idempotency import intent_at
from dashboard.api.operations import answers, router
from dashboard.api.restarts import WRITTEN_AGAIN, ProgramOut, QuerySinkOut, uploaded
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.schemas.rows import RestartOut
from dashboard.api.typed import Body, checked, filled
from dashboard.forms.launch import settings_text
from dashboard.forms.submit import CheckpointsForm, SavepointForm, SubmitForm
from dashboard.views.clusters import find_cluster
from monitoring.engine.answers import FoundCheckpoint, SavepointValidation
from monitoring.models import Cluster, Engine, Job, RestartAttempt
from monitoring.reasons.columns import columns
from monitoring.recovery.manual import AttemptOpen
from monitoring.recovery.rows_written_again import QuerySink

routes = router("Submitting")


class CheckpointsIn(Body):
    checkpoints: dict[str, str] = Field(
        description='The checkpoint location of each query, by query name. The name of a single query may be "".',
        min_length=1,
    )


class FoundOperatorOut(Schema):
    name: str = Field(description="Spark's name of the operator, for example stateStoreSave.")
    partitions: int


class FoundCheckpointOut(Schema):
    query: str
    location: str
    valid: bool = Field(description="Whether it can be imported. If not, all fields after `reason` are null or empty.")
    reason: str = Field(description="The reason, if it cannot be imported.")
    reason_value: ReasonJson
    query_id: str
    batch: int | None = Field(description="The newest committed batch. The job continues after it.")
    batch_at: datetime | None = Field(description="The start of this batch.")
    begun_batch: int | None = Field(description="A batch that was started but not committed. It runs again.")
    sources: int | None
    operators: list[FoundOperatorOut] = Field(description="The stateful operators.")
    store: str = Field(description="The state store: RocksDB, HDFS-backed or another provider. Empty without state.")
    formats: dict[str, str] = Field(description="The file versions in `offsets` and `commits`.")
    size: int | None = Field(description="Bytes to copy.")


class SnapshotIn(Body):
    savepoint: str = Field(description="The location of a savepoint or retained checkpoint.", min_length=1)
    entry_class: str = Field("", description="The entry class of the job. A snapshot of another program is not valid.")


class FoundSnapshotOut(Schema):
    valid: bool = Field(description="Whether a job can start from it.")
    reason: str = Field(description="The reason, if no job can start from it.")
    checkpoint_id: int | None
    job_name: str
    entry_class: str
    state_size: int | None = Field(description="Bytes.")
    completed_at: datetime | None
    written_again: list[QuerySinkOut] = Field(description=WRITTEN_AGAIN)

    @staticmethod
    def resolve_written_again(found: SavepointValidation) -> list[QuerySink]:
        return [QuerySink(*each) for each in found.written_again]


class JobIn(Body):
    name: str
    jar_id: str = Field(description="The id of a program on the cluster, from its upload.")
    entry_class: str = Field(description="A function as module:function, or file.py to run the file as a script.")
    program_args: list[str] = []
    configuration: dict[str, str] = {}
    parallelism: int | None = None
    state: Literal["empty", "savepoint", "checkpoint"] = Field("empty", description="The start of the job.")
    savepoint: str = Field("", description="For `state` savepoint: the location of a savepoint or retained checkpoint.")
    checkpoints: dict[str, str] = Field(
        {},
        description="For `state` checkpoint: locations that Spark wrote without Waymark, by query name. The name of a "
        'single query may be "". The locations are copied and do not change.',
    )


@routes.post(
    "/clusters/{int:cluster_id}/programs",
    response=answers(ProgramOut, 201),
    summary="Upload a program for a new job",
)
def upload_program(request: HttpRequest, cluster_id: int, program: File[UploadedFile]) -> Status[dict[str, Any]]:
    """Send a `.py`, `.zip` or `.whl` file as the part `program` of multipart/form-data. Administrators only."""
    require(request, Role.ADMIN)
    return uploaded(request, Job(cluster=_job_manager(cluster_id), name="a new job"), program)


@routes.post(
    "/clusters/{int:cluster_id}/checkpoint-locations",
    response=answers(list[FoundCheckpointOut]),
    summary="Check Spark checkpoint locations before a job starts from them",
)
def look(request: HttpRequest, cluster_id: int, body: CheckpointsIn) -> list[dict[str, Any]]:
    """Read-only. The response also lists locations that cannot be imported, with the reason."""
    require(request, Role.ADMIN)
    cluster = _job_manager(cluster_id)
    form = checked(CheckpointsForm({"checkpoints": _lines(body.checkpoints)}))
    intent_at(request).commit()
    try:
        return [_found(each) for each in find_checkpoints_at(cluster, form.cleaned_data["checkpoints"])]
    except NotStarted as refused:
        raise conflict(refused) from refused


@routes.post(
    "/clusters/{int:cluster_id}/snapshots",
    response=answers(FoundSnapshotOut),
    summary="Check a savepoint or retained checkpoint before a job starts from it",
)
def look_at_snapshot(request: HttpRequest, cluster_id: int, body: SnapshotIn) -> SavepointValidation:
    """Read-only. If the snapshot cannot be used, the response gives the reason."""
    require(request, Role.ADMIN)
    cluster = _job_manager(cluster_id)
    path = checked(SavepointForm({"savepoint": body.savepoint})).cleaned_data["savepoint"]
    intent_at(request).commit()
    try:
        found = validate_savepoint_at(cluster, path, body.entry_class)
    except NotStarted as refused:
        raise conflict(refused) from refused
    if found is None:
        raise conflict(f"{cluster.name} cannot check a snapshot before a job uses it.")
    return found


@routes.post("/clusters/{int:cluster_id}/jobs", response=answers(RestartOut, 202), summary="Submit a new job")
def submit(request: HttpRequest, cluster_id: int, body: JobIn) -> Status[RestartAttempt]:
    """Returns the start of the job. Poll `/restarts/{id}` for its progress.

    If `state` is `checkpoint`, Waymark copies the checkpoint locations first.
    """
    require(request, Role.ADMIN)
    cluster, given = _job_manager(cluster_id), body.given()
    for name, write in (("configuration", settings_text), ("checkpoints", _lines)):
        if name in given:
            given[name] = write(given[name])
    form = checked(SubmitForm(filled(SubmitForm(cluster=cluster), given), cluster=cluster))
    intent = intent_at(request)
    found: Sequence[FoundCheckpoint] = ()
    try:
        if locations := form.origin.imports:
            intent.commit()
            found = find_checkpoints_at(cluster, locations)
            check_usable(found)
        elif path := form.origin.path:
            intent.commit()
            check_savepoint(validate_savepoint_at(cluster, path, form.spec["entry_class"]))
        return Status(202, submit_job(cluster, form, actor_of(request), intent, found))
    except NotStarted as refused:
        raise Refused(422, fields=[FieldError(field=refused.field, value=None, message=str(refused))]) from refused
    except AttemptOpen as refused:
        raise conflict(refused) from refused


def _job_manager(cluster_id: int) -> Cluster:
    cluster = find_cluster(cluster_id)
    if cluster.engine != Engine.SPARK:
        raise conflict(f"{cluster.name} is not a Waymark job manager. Only job managers accept new jobs and programs.")
    return cluster


def _lines(checkpoints: dict[str, str]) -> str:
    return "\n".join(f"{query}={location}" if query else location for query, location in checkpoints.items())


def _found(each: FoundCheckpoint) -> dict[str, Any]:
    operators = [{"name": name, "partitions": partitions} for name, partitions in each.operators]
    return {**vars(each), **columns("reason", each.reason), "operators": operators, "formats": dict(each.formats)}
