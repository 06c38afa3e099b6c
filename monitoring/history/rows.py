"""Read checkpoints and operators of the history, which are in PostgreSQL or in the archive.

Only this module reads both. If both have a checkpoint, PostgreSQL's version is newer. Rows from the archive have the
attribute `archived`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
from django.db import connection
from django.db.models import Q

from monitoring.history.archive import reading
from monitoring.history.archive.parquet import Unreadable
from monitoring.history.archive.reading import Found, Place, Wish, unreadable
from monitoring.history.catalogue import WHOLE_DAY, archived_days, floor
from monitoring.history.catalogue import count as count_archived
from monitoring.history.pipeline.columns import CHECKPOINTS, DAY, FIGURES, REASON
from monitoring.models import ArchivedState, Checkpoint, Job, OperatorCheckpoint

__all__ = ["Found", "Place", "Unreadable", "Wish", "count_archived", "unreadable"]  # and the functions below

FEW = 100
Piece = tuple[int, int | None, datetime, datetime]  # any number, a run or None for all runs, and a time range

# PostgreSQL reads the next page of each run by the index of the runs, and merges these pages to that of the job.
_PAGE = """
SELECT c.id, c.triggered_at FROM monitoring_run r
CROSS JOIN LATERAL (
    SELECT id, triggered_at FROM monitoring_checkpoint
    WHERE run_id = r.id {conditions} {place}
    ORDER BY triggered_at {direction}, id {direction} LIMIT %(limit)s
) c
WHERE r.job_id = %(job)s
ORDER BY c.triggered_at {direction}, c.id {direction} LIMIT %(limit)s
"""
_COUNT = """
SELECT count(*) FROM (
    SELECT 1 FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
    WHERE r.job_id = %(job)s {conditions} LIMIT %(most)s
) counted
"""
_COLUMNS = {"number": "r.number"}
_REASON = REASON.replace("failure_message", "c.failure_message")
# With a plain join, PostgreSQL would read all checkpoints of a run for few pieces.
_OF_PIECES = f"""
SELECT p.number, r.job_id, floor(date_part('epoch', c.triggered_at) / 3600)::bigint * 3600,
       floor(date_part('epoch', c.triggered_at))::bigint, c.status, c.is_savepoint,
       CASE WHEN c.status = 'FAILED' THEN {_REASON} END, {", ".join(f"c.{column}" for column in FIGURES.values())}
FROM unnest(%(numbers)s::int[], %(runs)s::bigint[], %(starts)s::timestamptz[], %(ends)s::timestamptz[])
    AS p (number, run, start, until)
JOIN monitoring_run r ON r.job_id = %(job)s AND (p.run IS NULL OR r.id = p.run)
CROSS JOIN LATERAL (
    SELECT * FROM monitoring_checkpoint WHERE run_id = r.id AND triggered_at >= p.start AND triggered_at < p.until
      AND triggered_at >= %(first)s AND triggered_at < %(last)s
    OFFSET 0
) c
LIMIT %(most)s::bigint + 1
"""  # noqa: S608 (constants only)


class NotAllRead(LookupError):
    """Raised if checkpoints of a time range are too many, are deleted, or cannot be read. The message says which."""


def page(job: Job, wishes: Sequence[Wish], place: Place | None = None, *, upwards: bool = False, limit: int) -> Found:
    """Return the next checkpoints after `place` with their runs: newest first, `upwards` oldest first."""
    stored = _stored(_keys(job, wishes, place, upwards, limit))
    if len(stored) == limit:
        wishes = [*wishes, Wish("triggered_at", "<=" if upwards else ">=", stored[-1].triggered_at)]
    found = reading.checkpoints(job, wishes, place, upwards=upwards, limit=limit)
    both = sorted([*stored, *found.checkpoints], key=lambda row: (row.triggered_at, row.pk), reverse=not upwards)
    return Found(both[:limit], found.unreadable)


def newest(job: Job, wanted: Sequence[tuple[Sequence[Wish], int]]) -> list[list[Checkpoint]]:
    """Return, for each of `wanted` (wishes, limit), the newest checkpoints in PostgreSQL, all by one query."""
    found = [_keys(job, wishes, None, upwards=False, limit=limit) for wishes, limit in wanted]
    by_id = {row.pk: row for row in _stored([key for keys in found for key in keys])}
    return [[by_id[key["id"]] for key in keys if key["id"] in by_id] for keys in found]


def newest_place(job: Job) -> Place | None:
    """Return the place of the newest checkpoint in PostgreSQL."""
    found = _keys(job, [], None, upwards=False, limit=1)
    return (found[0]["triggered_at"], found[0]["id"]) if found else None


def count(job: Job, wishes: Sequence[Wish], most: int) -> int:
    """Count the checkpoints in PostgreSQL, up to `most`."""
    conditions, parameters = _conditions(wishes)
    with connection.cursor() as cursor:
        cursor.execute(_COUNT.format(conditions=conditions), {**parameters, "job": job.pk, "most": most})
        return int(cursor.fetchone()[0])


def checkpoint(pk: int) -> Checkpoint | None:
    """Return the checkpoint with its run and job, or None. Raises Unreadable."""
    with_job = Checkpoint.objects.select_related("run__job__cluster", "run__job__configuration")
    return with_job.filter(pk=pk).first() or reading.checkpoint(pk)


def operators_of(checkpoint: Checkpoint) -> list[OperatorCheckpoint]:
    """Return the operators of a checkpoint in their order. Raises Unreadable."""
    return reading.operators(checkpoint) if checkpoint.archived else list(checkpoint.operators.all())


def operator(pk: int) -> OperatorCheckpoint | None:
    """Return the operator with its checkpoint, run and job, or None. Raises Unreadable."""
    with_job = OperatorCheckpoint.objects.select_related("checkpoint__run__job")
    return with_job.filter(pk=pk).first() or reading.operator(pk)


def of_pieces(
    job: Job, pieces: Sequence[Piece], most: int | None, archived: frozenset[datetime] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Yield numbers of pieces and checkpoints of these pieces, in the schema CHECKPOINTS.

    Days that are archived are read from the archive only, because their roll-ups are made from it. `archived` has
    these days if the caller knows them.

    Raises:
        NotAllRead: There are more than `most` checkpoints, or not all of them can be read.
    """
    if not pieces:
        return
    if archived is None:
        archived = archived_days(job, min(piece[2] for piece in pieces), max(piece[3] for piece in pieces))
    divided = [(*piece[:2], *part) for piece in pieces for part in _divided(piece[2], piece[3], archived)]
    yield from _stored_pieces(job, [piece for piece in divided if floor(piece[2], DAY) not in archived], most)
    yield from _archived_pieces(job, [piece for piece in divided if floor(piece[2], DAY) in archived], most)


def _conditions(wishes: Sequence[Wish]) -> tuple[str, dict[str, Any]]:
    """Return SQL conditions and their parameters, for a statement in which `r` is the run."""
    found = list(enumerate(wishes))
    sql = "".join(f" AND {_COLUMNS.get(w.column, w.column)} {w.operator} %(wish{n})s" for n, w in found)
    return sql, {f"wish{n}": wish.value for n, wish in found}


def _keys(job: Job, wishes: Sequence[Wish], place: Place | None, upwards: bool, limit: int) -> list[dict[str, Any]]:
    """Return `id` and `triggered_at` of PostgreSQL's next checkpoints after `place`."""
    conditions, parameters = _conditions(wishes)
    way = ">" if upwards else "<"
    statement = _PAGE.format(
        conditions=conditions,
        # The first condition is redundant, but PostgreSQL skips partitions only by a comparison of one column.
        place=f"AND triggered_at {way}= %(at)s AND (triggered_at, id) {way} (%(at)s, %(pk)s)" if place else "",
        direction="ASC" if upwards else "DESC",
    )
    at, pk = place or (None, None)
    with connection.cursor() as cursor:
        cursor.execute(statement, {**parameters, "at": at, "pk": pk, "job": job.pk, "limit": limit})
        return [{"id": key, "triggered_at": moment} for key, moment in cursor.fetchall()]


def _stored(keys: Sequence[Mapping[str, Any]]) -> list[Checkpoint]:
    """Return PostgreSQL's checkpoints with their runs, in the order of `keys`."""
    if not keys:
        return []
    times = [key["triggered_at"] for key in keys]
    # For a few checkpoints, PostgreSQL reads only the partitions that have one of their times.
    then = Q(triggered_at__in=times) if len(times) <= FEW else Q(triggered_at__range=(min(times), max(times)))
    rows = Checkpoint.objects.filter(then, pk__in={key["id"] for key in keys})
    read = rows.select_related("run").defer("run__exceptions", "run__summary", "run__vertices")
    by_id = {row.pk: row for row in read}
    return [by_id[key["id"]] for key in keys if key["id"] in by_id]


def _divided(start: datetime, end: datetime, archived: frozenset[datetime]) -> Iterator[tuple[datetime, datetime]]:
    """Divide a time range where archived days begin and end."""
    edges = sorted(edge for edge in archived ^ {day + WHOLE_DAY for day in archived} if start < edge < end)
    yield from pairwise([start, *edges, end])


def _stored_pieces(job: Job, pieces: Sequence[Piece], most: int | None) -> Iterator[tuple[int, pa.Table]]:
    if not pieces:
        return
    numbers, runs, starts, ends = map(list, zip(*pieces, strict=True))
    parameters: dict[str, Any] = {"job": job.pk, "numbers": numbers, "runs": runs, "starts": starts, "ends": ends}
    parameters |= {"first": min(starts), "last": max(ends), "most": most}
    by_number: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_OF_PIECES, parameters)
        for number, *values in cursor.fetchall():
            by_number[number].append(tuple(values))
    if most is not None and sum(map(len, by_number.values())) > most:
        raise NotAllRead(f"more than {most} checkpoints are not in roll-ups of a single run")
    for number, found in by_number.items():
        columns = zip(CHECKPOINTS, zip(*found, strict=True), strict=True)
        yield number, pa.table([pa.array(column, each.type) for each, column in columns], schema=CHECKPOINTS)


def _archived_pieces(job: Job, pieces: Sequence[Piece], most: int | None) -> Iterator[tuple[int, pa.Table]]:
    runs = list(job.runs.values_list("pk", flat=True)) if pieces else []
    read = 0
    for number, run, start, end in pieces:
        if gone := archived_days(job, start, end, (ArchivedState.EXPIRED, ArchivedState.REMOVED)):
            raise NotAllRead(f"checkpoints of {min(gone):%Y-%m-%d} were deleted")
        try:
            for found in reading.for_rollups(job, [run] if run else runs, start, end):
                read += found.num_rows
                if most is not None and read > most:
                    raise NotAllRead(f"more than {most} checkpoints would have to be read from the archive")
                yield number, found
        except Unreadable as why:
            raise NotAllRead(f"the archive cannot be read: {why}") from why
