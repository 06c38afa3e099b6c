"""The history of a job's checkpoints, with their operators and subtasks."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query
from pydantic import Field

from dashboard.api.errors import invalid, readable
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams
from dashboard.api.schemas.rows import CheckpointDetailOut, CheckpointOut, GapOut, OperatorDetailOut, OperatorOut
from dashboard.api.typed import Moment
from dashboard.queries.batch import read_batch
from dashboard.queries.detail import read_subtasks
from dashboard.queries.finding import find_checkpoint, find_operator
from dashboard.queries.history import Cursor, HistoryFilter, listed, unreadable_text
from dashboard.views.job import find_job
from monitoring.history.rows import operators_of
from monitoring.models import CheckpointGap

routes = router("Checkpoints")


class CheckpointsParams(PageParams):
    status: Literal["", "IN_PROGRESS", "COMPLETED", "FAILED"] = ""
    kind: Literal["", "checkpoint", "savepoint", "UNALIGNED_CHECKPOINT", "SYNC_SAVEPOINT"] = ""
    run: int | None = Field(None, ge=1, lt=2**31, description="The number of a run of the job.")
    since: Moment | None = Field(None, description="Triggered at this time or later.")
    until: Moment | None = Field(None, description="Triggered before this time.")
    least_duration: int | None = Field(None, ge=0, lt=2**63, description="Minimum end to end duration in milliseconds.")
    least_alignment: int | None = Field(
        None, ge=0, lt=2**63, description="Minimum of the longest alignment of a subtask, in milliseconds."
    )
    least_size: int | None = Field(None, ge=0, lt=2**63, description="Minimum full size in bytes.")


class ListedCheckpoints(Listed[CheckpointOut]):
    unreadable: list[str] = Field([], description="Archive files with further checkpoints that cannot be read.")


@routes.get(
    "/jobs/{int:job_id}/checkpoints",
    response=answers(ListedCheckpoints),
    summary="List the checkpoints of a job over all runs, newest first",
)
def checkpoints(request: HttpRequest, job_id: int, params: Query[CheckpointsParams]) -> dict[str, Any]:
    before = Cursor.parse(params.cursor) if params.cursor else None
    if params.cursor and before is None:
        raise invalid("cursor", params.cursor, "Send the `next` of the previous page.")
    own = params.model_dump(exclude={"limit", "cursor"})
    found = listed(find_job(job_id), HistoryFilter(**own), before, limit=params.limit + 1)
    shown = found.checkpoints[: params.limit]
    more = str(Cursor.of(shown[-1])) if len(found.checkpoints) > params.limit else None
    return {"items": shown, "next": more, "unreadable": [unreadable_text(why) for why in found.unreadable]}


@routes.get(
    "/jobs/{int:job_id}/gaps", response=answers(list[GapOut]), summary="List ids of checkpoints that Waymark never saw"
)
def gaps(request: HttpRequest, job_id: int) -> Any:
    return CheckpointGap.objects.filter(run__job=job_id)


@routes.get(
    "/checkpoints/{int:checkpoint_id}",
    response=answers(CheckpointDetailOut),
    summary="Get a checkpoint with its operators",
)
def checkpoint(request: HttpRequest, checkpoint_id: int) -> dict[str, Any]:
    with readable():
        found = find_checkpoint(request, checkpoint_id)
        operators = [OperatorOut.from_orm(each).model_dump() for each in operators_of(found)]
    batch = read_batch(found.run.job, found.run, found.checkpoint_id)
    progress = None if batch is None else batch.progress
    return CheckpointOut.from_orm(found).model_dump() | {"operators": operators, "progress": progress}


@routes.get(
    "/operators/{int:operator_id}",
    response=answers(OperatorDetailOut),
    summary="Get an operator of a checkpoint with its subtasks",
)
def operator(request: HttpRequest, operator_id: int) -> dict[str, Any]:
    with readable():
        found = find_operator(request, operator_id)
    names = [column.field.removeprefix("subtask_") for column in read_subtasks(found).columns]
    subtasks = [
        {
            "index": row.index,
            "acknowledged_at": row.acknowledged_at,
            "unaligned": row.unaligned,
            "aborted": row.aborted,
            "figures": {name: cell.value for name, cell in zip(names, row.cells, strict=True)},
        }
        for row in read_subtasks(found).rows
    ]
    return OperatorOut.from_orm(found).model_dump() | {"subtasks": subtasks}
