"""Read the archive for pages, downloads and roll-ups.

The database finds files by cluster, day, run and ID; the statistics in a file find its row groups. Rows that are also
in PostgreSQL are left out here, because PostgreSQL has their newer version. Missing and damaged files are reported.
Waiting for storage that does not answer is limited (decision 124).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from django.conf import settings
from django.db import models
from django.db.models import QuerySet
from pyarrow import compute as pc

from monitoring.history.archive import location, parquet
from monitoring.history.archive.kinds import KINDS
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, Checkpoint, Job, OperatorCheckpoint, Run
from monitoring.savepoints.storage_threads import STORAGE_THREADS, StorageSilent, TimeLimit

T = TypeVar("T")
M = TypeVar("M", bound=models.Model)
# Time limits for reading a file, also from remote storage: the usual one, and the one while another read hangs.
WITHIN_S, HURRIED_S = 5.0, 1.0
_COMPARISONS = {"=": pc.equal, ">=": pc.greater_equal, "<=": pc.less_equal, ">": pc.greater, "<": pc.less}


@dataclass(frozen=True)
class Wish:
    """A condition on a column of checkpoints. `operator` is one of =, >=, <=, > and <. Null matches no condition."""

    column: str
    operator: str
    value: Any


@dataclass
class Found:
    """Checkpoints, and the errors of files that could not be read. Reading stops at a Silent file, the last one."""

    checkpoints: list[Checkpoint] = field(default_factory=list)
    unreadable: list[parquet.Unreadable] = field(default_factory=list)


def checkpoints(
    job: Job, wishes: Sequence[Wish], place: tuple[datetime, int] | None, *, upwards: bool, limit: int
) -> Found:
    """Return the next checkpoints after `place` (time, key), with their runs: newest first, `upwards` oldest first."""
    runs = _runs(job, wishes)
    found = Found()
    for file in _files_on(job, runs, wishes, place, upwards=upwards):
        try:
            table = _beyond(_matching(file, runs, wishes), place, upwards=upwards)
        except parquet.Damaged as damaged:
            found.unreadable.append(damaged)
            continue
        except parquet.Silent as silent:
            found.unreadable.append(silent)
            break
        rows = _without_stored(file, runs, _sorted(table, upwards=upwards))
        for row in rows[: limit - len(found.checkpoints)]:
            row.run = runs[row.run_id]
            found.checkpoints.append(row)
        if len(found.checkpoints) >= limit:
            break
    return found


def unreadable(job: Job, wishes: Sequence[Wish]) -> list[parquet.Unreadable]:
    """Return the errors of files that match the wishes but are missing or have a wrong footer.

    Pages within a file are verified only when they are read. The check stops at a Silent file, which is the last.
    """
    found: list[parquet.Unreadable] = []
    for file in _files_on(job, _runs(job, wishes), wishes, None, upwards=False):
        try:
            _in_thread(file, partial(parquet.verified, file))
        except parquet.Damaged as damaged:
            found.append(damaged)
        except parquet.Silent as silent:
            return [*found, silent]
    return found


def count(job: Job) -> int:
    """Return the number of the job's checkpoints in the archive."""
    runs = list(job.runs.values_list("pk", flat=True))
    files = _live(ArchivedKind.CHECKPOINTS).filter(cluster_id=job.cluster_id, runs__overlap=runs)
    wanted = set(runs)
    pairs = files.values_list("runs", "rows_by_run")
    return sum(n for keys, rows in pairs for run, n in zip(keys, rows, strict=True) if run in wanted)


def checkpoint(pk: int) -> Checkpoint | None:
    """Return the archived checkpoint, or None if the archive does not have it. Raises Unreadable."""
    found = _by_id(ArchivedKind.CHECKPOINTS, Checkpoint, "id", pk)
    run = Run.objects.select_related("job__cluster").filter(pk=found[0].run_id).first() if found else None
    if run is None:  # the runs of a deleted job are deleted with it
        return None
    found[0].run = run
    return found[0]


def operators(of: Checkpoint) -> list[OperatorCheckpoint]:
    """Return the operators of an archived checkpoint in their order. Raises Unreadable."""
    files = _live(ArchivedKind.OPERATORS).filter(since__lte=of.triggered_at, until__gt=of.triggered_at)
    wanted = files.filter(cluster_id=of.run.job.cluster_id)
    found = [row for file in wanted for row in _models(_rows_where(file, "checkpoint_id", {of.pk}), OperatorCheckpoint)]
    for row in found:
        row.checkpoint = of
    return sorted(found, key=lambda row: row.position)


def operator(pk: int) -> OperatorCheckpoint | None:
    """Return the archived operator with its checkpoint, or None. Raises Unreadable."""
    found = _by_id(ArchivedKind.OPERATORS, OperatorCheckpoint, "id", pk)
    of = checkpoint(found[0].checkpoint_id) if found else None
    if of is None:
        return None
    found[0].checkpoint = of
    return found[0]


def table(job: Job, runs: Collection[int], start: datetime, end: datetime) -> pa.Table:
    """Return archived checkpoints of these runs from `start` to before `end`, with all columns. Raises Unreadable."""
    wishes = [Wish("triggered_at", ">=", start), Wish("triggered_at", "<", end)]
    files = _live(ArchivedKind.CHECKPOINTS).filter(cluster_id=job.cluster_id, since__lt=end, until__gt=start)
    tables = [_matching(file, runs, wishes) for file in files.filter(runs__overlap=list(runs))]
    return pa.concat_tables(tables) if tables else KINDS[ArchivedKind.CHECKPOINTS].schema.empty_table()


# --- which files -----------------------------------------------------------------------------------------------------


def _live(kind: ArchivedKind) -> QuerySet[ArchivedFile]:
    return ArchivedFile.objects.filter(kind=kind, state=ArchivedState.LIVE)


def _runs(job: Job, wishes: Sequence[Wish]) -> dict[int, Run]:
    numbers = [wish.value for wish in wishes if wish.column == "number"]
    runs = job.runs.filter(number__in=numbers) if numbers else job.runs.all()
    found = runs.defer("exceptions", "summary", "vertices")
    for run in found:
        run.job = job
    return {run.pk: run for run in found}


def _files_on(
    job: Job, runs: Collection[int], wishes: Sequence[Wish], place: tuple[datetime, int] | None, *, upwards: bool
) -> Iterator[ArchivedFile]:
    files = _live(ArchivedKind.CHECKPOINTS).filter(cluster_id=job.cluster_id, runs__overlap=list(runs))
    if place is not None:
        files = files.filter(until__gt=place[0]) if upwards else files.filter(since__lte=place[0])
    for wish in wishes:
        if wish.column == "triggered_at":
            files = files.filter(until__gt=wish.value) if ">" in wish.operator else files.filter(since__lte=wish.value)
    return files.order_by("since" if upwards else "-since").iterator(chunk_size=50)


# --- rows of a file --------------------------------------------------------------------------------------------------


def _rows_where(file: ArchivedFile, column: str, wanted: Collection[int]) -> pa.Table:
    """Return the rows whose `column` is one of `wanted`, with all columns. Raises Unreadable."""
    return _in_thread(file, partial(parquet.rows_where, file, column, wanted))


def _in_thread(file: ArchivedFile, read: Callable[[], T]) -> T:
    """Return the result of `read`, or raise Unreadable if it fails or takes longer than WITHIN_S.

    While another read of the archive hangs, the limit is HURRIED_S. A remote file that arrives too late stays in the
    cache.
    """
    root = f"archive {settings.ARCHIVE}"
    limit_s = HURRIED_S if STORAGE_THREADS.hanging(root) else WITHIN_S

    def read_in_time() -> T:
        try:
            return STORAGE_THREADS.run(root, location.place(file.path), read, TimeLimit(limit_s))
        except StorageSilent as silence:
            raise parquet.Silent(file, limit_s) from silence

    return parquet.told(file, read_in_time)


def _matching(file: ArchivedFile, runs: Collection[int], wishes: Sequence[Wish]) -> pa.Table:
    found = _rows_where(file, "run_id", runs)
    for wish in wishes:
        if wish.column != "number":
            of = found.schema.field(wish.column).type
            found = found.filter(_COMPARISONS[wish.operator](found[wish.column], pa.scalar(wish.value, of)))
    return found


def _beyond(found: pa.Table, place: tuple[datetime, int] | None, *, upwards: bool) -> pa.Table:
    if place is None:
        return found
    compare = pc.greater if upwards else pc.less
    at = pa.scalar(place[0], found.schema.field("triggered_at").type)
    same = pc.and_(pc.equal(found["triggered_at"], at), compare(found["id"], place[1]))
    return found.filter(pc.or_(compare(found["triggered_at"], at), same))


def _sorted(found: pa.Table, *, upwards: bool) -> pa.Table:
    way = "ascending" if upwards else "descending"
    return found.sort_by([("triggered_at", way), ("id", way)])


def _without_stored(file: ArchivedFile, runs: Collection[int], found: pa.Table) -> list[Checkpoint]:
    stored = Checkpoint.objects.filter(run__in=runs, triggered_at__gte=file.since, triggered_at__lt=file.until)
    there = set(stored.values_list("run_id", "checkpoint_id", "triggered_at"))
    rows = _models(found, Checkpoint)
    return [row for row in rows if (row.run_id, row.checkpoint_id, row.triggered_at) not in there]


def _by_id(kind: ArchivedKind, model: type[M], column: str, pk: int) -> list[M]:
    for file in _live(kind).filter(least_id__lte=pk, greatest_id__gte=pk):
        if found := _models(_rows_where(file, column, {pk}), model):
            return found
    return []


def _models(found: pa.Table, model: type[M]) -> list[M]:
    """Return the rows as instances of the model, marked as archived."""
    rows = [
        model.from_db("default", found.column_names, values)
        for values in zip(*(column.to_pylist() for column in found.columns), strict=True)
    ]
    for row in rows:
        row.archived = True  # type: ignore[attr-defined]
    return rows
