"""The history of a job's checkpoints, down to the subtask."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Query
from pydantic import Field

from dashboard.api.errors import invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Asked, Listed
from dashboard.api.schemas.rows import CheckpointDetailOut, CheckpointOut, GapOut, OperatorDetailOut, OperatorOut
from dashboard.api.typed import Moment
from dashboard.queries.detail import read_subtasks
from dashboard.queries.history import Cursor, HistoryFilter, latest_checkpoints
from dashboard.views.job import find_job
from monitoring.models import Checkpoint, CheckpointGap, OperatorCheckpoint

routes = router("Checkpoints")


class AskedCheckpoints(Asked):
    status: Literal["", "IN_PROGRESS", "COMPLETED", "FAILED"] = ""
    kind: Literal["", "checkpoint", "savepoint", "UNALIGNED_CHECKPOINT", "SYNC_SAVEPOINT"] = ""
    run: int | None = Field(None, ge=1, lt=2**31, description="The number of one of its runs.")
    since: Moment | None = Field(None, description="Triggered then or later.")
    until: Moment | None = Field(None, description="Triggered before then.")
    least_duration: int | None = Field(None, ge=0, lt=2**63, description="End to end, in milliseconds.")
    least_size: int | None = Field(None, ge=0, lt=2**63, description="Of the full state, in bytes.")


@routes.get(
    "/jobs/{int:job_id}/checkpoints",
    response=answers(Listed[CheckpointOut]),
    summary="Its checkpoints over all runs, the newest first",
)
def checkpoints(request: HttpRequest, job_id: int, asked: Query[AskedCheckpoints]) -> dict[str, Any]:
    before = Cursor.parse(asked.cursor) if asked.cursor else None
    if asked.cursor and before is None:
        raise invalid("cursor", asked.cursor, "Send what `next` of the page before said.")
    own = asked.model_dump(exclude={"limit", "cursor"})
    found = latest_checkpoints(find_job(job_id), asked.limit + 1, HistoryFilter(**own), before)
    shown = found[: asked.limit]
    more = str(Cursor(shown[-1].triggered_at, shown[-1].pk)) if len(found) > asked.limit else None
    return {"items": shown, "next": more}


@routes.get("/jobs/{int:job_id}/gaps", response=answers(list[GapOut]), summary="Ids that were never seen")
def gaps(request: HttpRequest, job_id: int) -> Any:
    return CheckpointGap.objects.filter(run__job=job_id)


@routes.get("/checkpoints/{int:checkpoint_id}", response=answers(CheckpointDetailOut), summary="One, by operator")
def checkpoint(request: HttpRequest, checkpoint_id: int) -> Checkpoint:
    return Checkpoint.objects.prefetch_related("operators").get(pk=checkpoint_id)


@routes.get(
    "/operators/{int:operator_id}", response=answers(OperatorDetailOut), summary="An operator of one, by subtask"
)
def operator(request: HttpRequest, operator_id: int) -> dict[str, Any]:
    found = OperatorCheckpoint.objects.get(pk=operator_id)
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
