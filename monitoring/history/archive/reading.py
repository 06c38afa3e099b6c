"""Read rows of archived files for history/rows.py, with pyarrow datasets.

PostgreSQL's catalogue finds the files, and the statistics in a file find its row groups. A file is used only if its
size and footer are those in the catalogue. The checksum of each page that is read must be right, too. Waiting for
storage that does not answer is limited (decision 124).
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from django.conf import settings
from django.db import models
from django.db.models import QuerySet
from pyarrow import compute as pc
from pyarrow import dataset as ds
from pyarrow.fs import LocalFileSystem

from monitoring.history import catalogue
from monitoring.history.archive import location, parquet
from monitoring.history.archive.kinds import KINDS, Kind
from monitoring.history.pipeline.columns import CHECKPOINTS, FIGURES, HOUR, LONGEST_REASON, REASON_PATTERN
from monitoring.models import ArchivedFile, ArchivedKind, Checkpoint, Job, OperatorCheckpoint, Run
from monitoring.savepoints.storage_threads import STORAGE_THREADS, StorageSilent, TimeLimit

T = TypeVar("T")
M = TypeVar("M", bound=models.Model)
Place = tuple[datetime, int]  # the trigger time and the key of a checkpoint
# Time limits for reading a file, also from remote storage: the usual one, and the one while another read hangs.
WITHIN_S, HURRIED_S = 5.0, 1.0
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)
_KIND = KINDS[ArchivedKind.CHECKPOINTS]
_COMPARISONS = {"=": op.eq, ">=": op.ge, "<=": op.le, ">": op.gt, "<": op.lt}
_SAME = ["run_id", "checkpoint_id", "triggered_at"]  # a row in PostgreSQL with these values is a newer version
_REASON = f"(?P<reason>{REASON_PATTERN})"


@dataclass(frozen=True)
class Wish:
    """A condition on a column of checkpoints, or on the `number` of the run.

    `operator` is one of =, >=, <=, > and <. Null matches no condition.
    """

    column: str
    operator: str
    value: Any


@dataclass
class Found:
    """Checkpoints, and the errors of files that could not be read. Reading stops at a Silent file, the last one."""

    checkpoints: list[Checkpoint] = field(default_factory=list)
    unreadable: list[parquet.Unreadable] = field(default_factory=list)


def checkpoints(job: Job, wishes: Sequence[Wish], place: Place | None, *, upwards: bool, limit: int) -> Found:
    """Return the next checkpoints after `place` with their runs: newest first, `upwards` oldest first.

    Files overlap in time, so every file that may have a nearer row is read. Rows in PostgreSQL are left out.
    """
    found, nearest = Found(), list[Checkpoint]()
    files = _files_on(job, wishes, place, upwards=upwards)
    runs = {run.pk: run for run in _runs_on(job, wishes)} if files.exists() else {}
    for file in files.iterator(chunk_size=50):
        if len(nearest) == limit and _is_beyond(file, nearest[-1].triggered_at, upwards=upwards):
            break
        where, stored = _where(runs, wishes, place, upwards=upwards), _stored(file, runs)
        try:
            table = _in_thread(file, partial(_nearest, file, where, stored, upwards=upwards, limit=limit))
        except parquet.Unreadable as why:
            found.unreadable.append(why)
            if isinstance(why, parquet.Silent):
                break
            continue
        both = [*nearest, *_models(table, Checkpoint)]
        nearest = sorted(both, key=lambda row: (row.triggered_at, row.pk), reverse=not upwards)[:limit]
    for row in nearest:
        row.run = runs[row.run_id]
        row.run.job = job
    found.checkpoints = nearest
    return found


def unreadable(job: Job, wishes: Sequence[Wish]) -> list[parquet.Unreadable]:
    """Return the errors of files that match the wishes but are missing or have a wrong footer.

    Pages within a file are verified only when they are read. The check stops at a Silent file, which is the last.
    """
    found: list[parquet.Unreadable] = []
    for file in _files_on(job, wishes, None, upwards=False).iterator(chunk_size=50):
        try:
            _in_thread(file, partial(parquet.verified, file))
        except parquet.Unreadable as why:
            found.append(why)
            if isinstance(why, parquet.Silent):
                break
    return found


def checkpoint(pk: int) -> Checkpoint | None:
    """Return the archived checkpoint, or None if the archive does not have it. Raises Unreadable."""
    found = _by_id(ArchivedKind.CHECKPOINTS, Checkpoint, pk)
    with_job = Run.objects.select_related("job__cluster", "job__configuration")
    run = with_job.filter(pk=found.run_id).first() if found else None
    if found is None or run is None:  # the runs of a deleted job are deleted with it
        return None
    found.run = run
    return found


def operators(of: Checkpoint) -> list[OperatorCheckpoint]:
    """Return the operators of an archived checkpoint in their order. Raises Unreadable."""
    files = catalogue.live(ArchivedKind.OPERATORS).filter(since__lte=of.triggered_at, until__gt=of.triggered_at)
    found: list[OperatorCheckpoint] = []
    for file in files.filter(cluster_id=of.run.job.cluster_id):
        found += _models(_read(file, pc.field("checkpoint_id") == of.pk), OperatorCheckpoint)
    for row in found:
        row.checkpoint = of
    return sorted(found, key=lambda row: row.position)


def operator(pk: int) -> OperatorCheckpoint | None:
    """Return the archived operator with its checkpoint, or None. Raises Unreadable."""
    found = _by_id(ArchivedKind.OPERATORS, OperatorCheckpoint, pk)
    of = checkpoint(found.checkpoint_id) if found else None
    if found is None or of is None:
        return None
    found.checkpoint = of
    return found


def for_rollups(job: Job, runs: Collection[int], start: datetime, end: datetime) -> Iterator[pa.Table]:
    """Yield checkpoints of these runs from `start` to before `end`, in the schema CHECKPOINTS. Raises Unreadable."""
    wishes = [Wish("triggered_at", ">=", start), Wish("triggered_at", "<", end)]
    columns = ["triggered_at", "status", "is_savepoint", "failure_message", *FIGURES.values()]
    for file in _files_on(job, wishes, None, upwards=True).filter(runs__overlap=list(runs)):
        yield _as_read_by_the_pipeline(_read(file, _where(runs, wishes), columns), job)


# --- which files and rows --------------------------------------------------------------------------------------------


def _runs_on(job: Job, wishes: Sequence[Wish]) -> QuerySet[Run]:
    numbers = [wish.value for wish in wishes if wish.column == "number"]
    runs = job.runs.filter(number__in=numbers) if numbers else job.runs.all()
    return runs.defer("exceptions", "summary", "vertices")


def _files_on(job: Job, wishes: Sequence[Wish], place: Place | None, *, upwards: bool) -> QuerySet[ArchivedFile]:
    """Return the files that may have such rows, the one that may have the nearest row first."""
    runs = _runs_on(job, wishes).order_by().values("pk")
    files = catalogue.live(ArchivedKind.CHECKPOINTS).filter(cluster_id=job.cluster_id, runs__overlap=runs)
    if place is not None:
        files = files.filter(until__gt=place[0]) if upwards else files.filter(since__lte=place[0])
    for wish in wishes:
        if wish.column == "triggered_at":
            files = files.filter(until__gt=wish.value) if ">" in wish.operator else files.filter(since__lte=wish.value)
    return files.order_by("since" if upwards else "-until")


def _is_beyond(file: ArchivedFile, at: datetime, *, upwards: bool) -> bool:
    """Return whether a row at this time precedes all rows of the file."""
    return at < file.since if upwards else at >= file.until


def _where(
    runs: Collection[int], wishes: Sequence[Wish], place: Place | None = None, *, upwards: bool = False
) -> ds.Expression:
    found = one_of("run_id", runs)
    for wish in wishes:
        if wish.column != "number":
            found &= _compared(wish.column, wish.operator, wish.value)
    if place is not None:
        way = ">" if upwards else "<"
        same = _compared("triggered_at", "=", place[0]) & _compared("id", way, place[1])
        found &= _compared("triggered_at", way, place[0]) | same
    return found


def _compared(column: str, operator: str, value: Any) -> ds.Expression:
    return _COMPARISONS[operator](pc.field(column), pa.scalar(value, _KIND.schema.field(column).type))


def one_of(column: str, values: Collection[int]) -> ds.Expression:
    """Return the condition that a column has one of these values.

    The comparisons let pyarrow skip row groups: `isin` does so only for up to 50 values.
    """
    between = (pc.field(column) >= min(values)) & (pc.field(column) <= max(values))
    return between & pc.field(column).isin(pa.array(values, pa.int64()))


def _stored(file: ArchivedFile, runs: Collection[int]) -> pa.Table:
    """Return the keys of PostgreSQL's checkpoints in the time range of the file: few, because it was archived."""
    rows = Checkpoint.objects.filter(run__in=runs, triggered_at__gte=file.since, triggered_at__lt=file.until)
    keys = [dict(zip(_SAME, key, strict=True)) for key in rows.values_list(*_SAME)]
    return pa.Table.from_pylist(keys, pa.schema([_KIND.schema.field(column) for column in _SAME]))


# --- reading a file --------------------------------------------------------------------------------------------------


def rows_of(path: Path, kind: Kind, where: ds.Expression | None = None, columns: list[str] | None = None) -> pa.Table:
    """Return all rows or those that meet the condition, with all or some columns. Raises OSError, ValueError."""
    file = ds.dataset(str(path), kind.schema, _FORMAT, LocalFileSystem())
    return file.to_table(columns, where, use_threads=False)


def _read(file: ArchivedFile, where: ds.Expression, columns: list[str] | None = None) -> pa.Table:
    """Return the rows of a verified file that meet the condition. Raises Unreadable."""
    kind = KINDS[ArchivedKind(file.kind)]
    return _in_thread(file, lambda: rows_of(parquet.verified(file), kind, where, columns))


def _nearest(file: ArchivedFile, where: ds.Expression, stored: pa.Table, *, upwards: bool, limit: int) -> pa.Table:
    """Return the first rows that meet the condition and are not `stored`. All other rows are read by their key only."""
    path, way = parquet.verified(file), "ascending" if upwards else "descending"
    keys = rows_of(path, _KIND, where, ["id", *_SAME]).join(stored, _SAME, join_type="left anti", use_threads=False)
    ids = keys.sort_by([("triggered_at", way), ("id", way)])["id"][:limit].to_pylist()
    return rows_of(path, _KIND, one_of("id", ids)) if ids else _KIND.schema.empty_table()


def _by_id(kind: ArchivedKind, model: type[M], pk: int) -> M | None:
    """Return the row, or None. Raises Unreadable if a file that may have it cannot be read."""
    damaged: parquet.Damaged | None = None
    for file in catalogue.live(kind).filter(least_id__lte=pk, greatest_id__gte=pk):
        try:
            if found := _models(_read(file, pc.field("id") == pk), model):
                return found[0]
        except parquet.Damaged as why:
            damaged = why  # another file may contain the row
    if damaged is not None:
        raise damaged
    return None


def _in_thread(file: ArchivedFile, read: Callable[[], T]) -> T:
    """Return the result of `read`, or raise Unreadable if it fails or takes longer than WITHIN_S.

    While another read of the archive hangs, the limit is HURRIED_S. A remote file that arrives too late stays in the
    cache. `read` may outlive the request, so it does not use the database.
    """
    root = f"archive {settings.ARCHIVE}"
    limit_s = HURRIED_S if STORAGE_THREADS.hanging(root) else WITHIN_S

    def read_in_time() -> T:
        try:
            return STORAGE_THREADS.run(root, location.place(file.path), read, TimeLimit(limit_s))
        except StorageSilent as silence:
            raise parquet.Silent(file, limit_s) from silence

    return parquet.read_and_note_problem(file, read_in_time)


def _models(found: pa.Table, model: type[M]) -> list[M]:
    """Return the rows as instances of the model, marked as archived."""
    rows = [
        model.from_db("default", found.column_names, values)
        for values in zip(*(column.to_pylist() for column in found.columns), strict=True)
    ]
    for row in rows:
        row.archived = True  # type: ignore[attr-defined]
    return rows


def _as_read_by_the_pipeline(found: pa.Table, job: Job) -> pa.Table:
    seconds = pc.divide(found["triggered_at"].cast(pa.int64()), 1_000_000)
    reason = pc.struct_field(pc.extract_regex(found["failure_message"], _REASON), "reason")
    short = pc.utf8_slice_codeunits(reason, 0, LONGEST_REASON)
    columns = {
        "job_id": pa.repeat(job.pk, found.num_rows),
        "hour": pc.multiply(pc.divide(seconds, HOUR), HOUR),
        "at": seconds,
        "status": found["status"],
        "is_savepoint": found["is_savepoint"],
        "reason": pc.if_else(pc.equal(found["status"], "FAILED"), short, None),
        **{figure: found[column] for figure, column in FIGURES.items()},
    }
    return pa.table([columns[name] for name in CHECKPOINTS.names], schema=CHECKPOINTS)
