"""Read keyed state in a snapshot of a PySpark job. A worker reads it, and the client polls for the result."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import Field

from dashboard.access.guard import access_of, actor_of, require
from dashboard.access.roles import Role
from dashboard.api.errors import conflict, invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.schemas.rows import StateReadOut
from dashboard.api.typed import Body, checked, filled
from dashboard.forms.state import StateForm
from dashboard.queries.state import newest_contents_read, without_values
from dashboard.views.job import find_job
from monitoring.models import Checkpoint, Job, StateRead, StateReadKind
from monitoring.reasons.columns import columns
from monitoring.state_reads.queries import StateQuery, StateReadRefused, label_of, snapshot_of, snapshots, store_query

routes = router("State")
_TYPED_VALUES = ("key_text", "contains")
_SNAPSHOT = "The id of a completed checkpoint or savepoint of this PySpark job."
_NOT_LISTED = "The contents of this snapshot are unknown. First send kind list, and wait until this read is done."


class SnapshotOut(Schema):
    id: int
    label: str
    label_value: ReasonJson


class QuestionIn(Body):
    snapshot: int = Field(description=_SNAPSHOT)
    kind: StateReadKind = Field(
        StateReadKind.LIST,
        description="list: contents. read: keys and values. sizes: rows by partition. diff: differences.",
    )
    place: str = Field(
        "", description="Number and view of an operator in `keyed` of the list, for example `0:default`."
    )
    key_field: str = ""
    key_text: str = ""
    contains: str = Field("", description="Part of the key.")
    partition: int | None = None
    most: int | None = Field(None, description="Maximum number of rows. null: 100.")
    other: int | None = Field(None, description="For diff: the id of the snapshot to compare with.")


@routes.get(
    "/jobs/{int:job_id}/snapshots",
    response=answers(list[SnapshotOut]),
    summary="List the snapshots whose state can be read",
)
def offered(request: HttpRequest, job_id: int) -> list[dict[str, Any]]:
    return [{"id": each.pk, **columns("label", label_of(each))} for each in snapshots(find_job(job_id))]


@routes.get(
    "/jobs/{int:job_id}/state-reads",
    response=answers(Listed[StateReadOut]),
    summary="List the state reads of a job without results, newest first",
)
def reads(request: HttpRequest, job_id: int, params: Query[PageParams]) -> dict[str, Any]:
    page = page_of(StateRead.objects.filter(job=job_id).defer("answer"), params, ("-asked_at", "-id"))
    return page | {"items": [_out(read, may_see_values=_may_see_values(request)) for read in page["items"]]}


@routes.get(
    "/jobs/{int:job_id}/state-reads/{int:read_id}",
    response=answers(StateReadOut),
    summary="Get a state read with its result",
)
def read(request: HttpRequest, job_id: int, read_id: int) -> dict[str, Any]:
    """Only operators of the job see keys and values."""
    found, may_see = get_object_or_404(StateRead, pk=read_id, job=job_id), _may_see_values(request)
    return _out(found, found.answer if may_see else _without_values(found), may_see_values=may_see)


@routes.post(
    "/jobs/{int:job_id}/state-reads", response=answers(StateReadOut, 202), summary="Read the state of a snapshot"
)
def ask_for(request: HttpRequest, job_id: int, body: QuestionIn) -> Status[dict[str, Any]]:
    require(request, Role.OPERATOR)
    job = find_job(job_id)
    snapshot = snapshot_of(job, body.snapshot)
    if snapshot is None:
        raise invalid("snapshot", body.snapshot, _SNAPSHOT)
    question, other = (StateQuery(StateReadKind.LIST), None)
    if body.kind != StateReadKind.LIST:
        question, other = _question(job, snapshot, body)
    try:
        created = store_query(job, snapshot, question, actor_of(request), timezone.now(), other)
    except StateReadRefused as error:
        raise conflict(error) from error
    return Status(202, _out(created))


def _question(job: Job, snapshot: Checkpoint, body: QuestionIn) -> tuple[StateQuery, Checkpoint | None]:
    listed = newest_contents_read(job, snapshot.pk)
    if listed is None or not listed.answer:
        raise conflict(_NOT_LISTED)
    others = [each for each in snapshots(job) if each.pk != snapshot.pk]
    given = {name: value for name, value in body.given().items() if name != "snapshot"}
    form = checked(StateForm(listed.answer, others, filled(StateForm(listed.answer, others), given)))
    is_diff = form.question.kind == StateReadKind.DIFF
    return form.question, snapshot_of(job, form.cleaned_data["other"]) if is_diff else None


def _may_see_values(request: HttpRequest) -> bool:
    return access_of(request).may(Role.OPERATOR)


def _without_values(read: StateRead) -> object:
    return without_values(read.answer) if read.kind == StateReadKind.LIST and read.answer else None


def _out(read: StateRead, answer: object = None, *, may_see_values: bool = True) -> dict[str, Any]:
    """Return a state read with its `answer`. Without `may_see_values`, the fields with the searched key are empty."""
    out = {name: getattr(read, name) for name in StateReadOut.model_fields if name != "answer"} | {"answer": answer}
    return out if may_see_values else out | dict.fromkeys(_TYPED_VALUES, "")
