"""The checkpoint history of a job over all its runs, paged by keyset: the millionth row costs what the first does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dashboard.queries.facts import select
from monitoring.models import Checkpoint, CheckpointGap, CheckpointStatus, Job

PAGE_SIZE = 25
COUNT_LIMIT = 10_000

# Every run gives its next page from its own index; the merge of those is the job's next page.
_PAGE = """
SELECT c.id, c.triggered_at FROM monitoring_run r
CROSS JOIN LATERAL (
    SELECT id, triggered_at FROM monitoring_checkpoint
    WHERE run_id = r.id {conditions} {cursor}
    ORDER BY triggered_at {direction}, id {direction} LIMIT %(limit)s
) c
WHERE r.job_id = %(job)s
ORDER BY c.triggered_at {direction}, c.id {direction} LIMIT %(limit)s
"""

_COUNT = """
SELECT count(*) AS n FROM (
    SELECT 1 FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
    WHERE r.job_id = %(job)s {conditions} LIMIT %(most)s
) counted
"""


@dataclass(frozen=True)
class HistoryFilter:
    status: str = ""  # a CheckpointStatus value
    kind: str = ""  # "checkpoint" or "savepoint"

    def conditions(self) -> tuple[str, dict[str, Any]]:
        sql = ""
        parameters: dict[str, Any] = {}
        if self.status in CheckpointStatus.values:
            sql += " AND status = %(status)s"
            parameters["status"] = self.status
        if self.kind in ("checkpoint", "savepoint"):
            sql += " AND is_savepoint = %(savepoint)s"
            parameters["savepoint"] = self.kind == "savepoint"
        return sql, parameters

    @property
    def narrows(self) -> bool:
        return bool(self.conditions()[0])


@dataclass(frozen=True)
class Cursor:
    """A row's place: older rows follow it, newer rows precede it."""

    at: datetime
    pk: int

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """`text` as `str()` writes it; None for anything else."""
        moment, _, pk = text.rpartition("_")
        try:
            at = datetime.fromisoformat(moment)
            return cls(at, int(pk)) if at.tzinfo else None
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.at.isoformat()}_{self.pk}"


@dataclass(frozen=True)
class HistoryRow:
    checkpoint: Checkpoint
    starts_run: bool  # the first shown row of its run: the page draws the run's heading above it
    gap: CheckpointGap | None = None  # ids right before this one that were never seen


@dataclass(frozen=True)
class HistoryPage:
    rows: list[HistoryRow]
    newer: Cursor | None
    older: Cursor | None
    total: int

    @property
    def total_is_capped(self) -> bool:
        return self.total > COUNT_LIMIT


def read_history(job: Job, chosen: HistoryFilter, *, before: Cursor | None, after: Cursor | None) -> HistoryPage:
    """One page, newest first: the rows older than `before`, or those right before `after`, or the newest."""
    upwards = after is not None
    found = _ids(job, chosen, after or before, upwards)
    more = len(found) > PAGE_SIZE
    found = found[:PAGE_SIZE]
    if upwards:
        found.reverse()
    rows = _rows(job, [row["id"] for row in found])
    first = Cursor(found[0]["triggered_at"], found[0]["id"]) if found else None
    last = Cursor(found[-1]["triggered_at"], found[-1]["id"]) if found else None
    return HistoryPage(
        rows=rows,
        newer=first if (more if upwards else before is not None) else None,
        older=last if (True if upwards else more) else None,
        total=count_history(job, chosen),
    )


def count_history(job: Job, chosen: HistoryFilter) -> int:
    """How many rows there are, counted up to one more than COUNT_LIMIT."""
    conditions, parameters = chosen.conditions()
    counted = select(_COUNT.format(conditions=conditions), {**parameters, "job": job.pk, "most": COUNT_LIMIT + 1})
    return int(counted[0]["n"])


def newest_checkpoint(job: Job) -> Cursor | None:
    found = _ids(job, HistoryFilter(), None, upwards=False, limit=1)
    return Cursor(found[0]["triggered_at"], found[0]["id"]) if found else None


def latest_checkpoints(job: Job, limit: int, chosen: HistoryFilter = HistoryFilter()) -> list[Checkpoint]:
    found = _ids(job, chosen, None, upwards=False, limit=limit)
    return [row.checkpoint for row in _rows(job, [row["id"] for row in found])]


def _ids(
    job: Job, chosen: HistoryFilter, cursor: Cursor | None, upwards: bool, limit: int = PAGE_SIZE + 1
) -> list[dict[str, Any]]:
    conditions, parameters = chosen.conditions()
    statement = _PAGE.format(
        conditions=conditions,
        cursor=f"AND (triggered_at, id) {'>' if upwards else '<'} (%(at)s, %(pk)s)" if cursor else "",
        direction="ASC" if upwards else "DESC",
    )
    place = {"at": cursor.at, "pk": cursor.pk} if cursor else {}
    return select(statement, {**parameters, **place, "job": job.pk, "limit": limit})


def _rows(job: Job, ids: list[int]) -> list[HistoryRow]:
    by_id = Checkpoint.objects.select_related("run").defer("run__exceptions", "run__summary").in_bulk(ids)
    gaps = {(gap.run_id, gap.last_id + 1): gap for gap in CheckpointGap.objects.filter(run__job=job)}
    rows, run = [], None
    for pk in ids:
        checkpoint = by_id[pk]
        gap = gaps.get((checkpoint.run_id, checkpoint.checkpoint_id))
        rows.append(HistoryRow(checkpoint, starts_run=checkpoint.run_id != run, gap=gap))
        run = checkpoint.run_id
    return rows
