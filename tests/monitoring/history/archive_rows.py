"""Builder of rows of a week in August, which tests archive, and reader of all rows from PostgreSQL and the archive."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from django.conf import settings
from django.db import connection, transaction
from pyarrow import compute as pc
from pyarrow import parquet as pq

from checkpointing.storage.checksums import sha256_of
from monitoring.history import partitions
from monitoring.history.archive import cycle, location, parquet, reading
from monitoring.history.archive.kinds import KINDS
from monitoring.models import (
    ArchivedFile,
    ArchivedKind,
    ArchivedState,
    Checkpoint,
    Cluster,
    CounterSample,
    OperatorCheckpoint,
    Run,
)
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from tests.monitoring.conftest import Rows
from tests.monitoring.reported import done

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OLD = datetime(2026, 8, 13, 12, tzinfo=UTC)  # a Thursday
MOVED = done(
    WorkReason.ARCHIVED(what="checkpoints and operators of 10 August to 16 August 2026"),
    WorkReason.ARCHIVED(what="samples of 10 August to 16 August 2026"),
)


def fill(
    rows: Rows,
    count: int = 120,
    every: timedelta = timedelta(minutes=20),
    *,
    cluster: Cluster | None = None,
    checkpoints_only: bool = False,
) -> Run:
    """Store a run with `count` checkpoints from OLD on, and 100 newer ones.

    With the newer ones, no checkpoint of August is among the newest of the run. To archive one kind of row of one
    cluster takes a second or two. So tests share a cluster, or store only checkpoints, if that is enough for them.
    """
    run = rows.run(rows.job(cluster), started_at=OLD)
    old = [OLD + number * every for number in range(count)]
    new = [NOW - timedelta(minutes=100 - number) for number in range(100)]
    checkpoints(run, old, 1, checkpoints_only=checkpoints_only)
    checkpoints(run, new, 1001, checkpoints_only=checkpoints_only)
    return run


def checkpoints(run: Run, times: list[datetime], first: int, *, checkpoints_only: bool = False) -> None:
    made = Checkpoint.objects.bulk_create(_checkpoint(run, first + n, at) for n, at in enumerate(times))
    if checkpoints_only:
        return
    OperatorCheckpoint.objects.bulk_create(_operator(each, name) for each in made for name in ("source", "sink"))
    CounterSample.objects.bulk_create(
        CounterSample(run=run, at=at, restored=0, total=first, in_progress=0, completed=n, failed=0)
        for n, at in enumerate(times)
    )


def _checkpoint(run: Run, number: int, at: datetime) -> Checkpoint:
    failed = number % 10 == 0
    return Checkpoint(
        run=run,
        checkpoint_id=number,
        triggered_at=at,
        status="FAILED" if failed else "COMPLETED",
        failure_message="Zeile 1\nline \"2\", ',' ☃" if failed else "",
        latest_ack_at=None if failed else at + timedelta(seconds=2, microseconds=number),
        end_to_end_duration=None if failed else 1000 + number,
        state_size=None if failed else number * 7919,
        external_path="" if failed else f"file:/checkpoints/{run.engine_job_id}/chk-{number}",
        discarded=True,
        final=True,
    )


def _operator(checkpoint: Checkpoint, name: str) -> OperatorCheckpoint:
    at = checkpoint.triggered_at
    return OperatorCheckpoint(
        checkpoint=checkpoint,
        triggered_at=at,
        vertex_id=name,
        name=name,
        position=("source", "sink").index(name),
        num_subtasks=3,
        num_acknowledged_subtasks=2,
        subtask_ack_at=[at, None, at + timedelta(microseconds=1)],
        subtask_sync=[1, None, 3],
        subtask_unaligned=[True, None, False],
    )


def advance() -> CycleReport:
    """Archive what is due, however long that takes on this machine."""
    return cycle.advance(NOW, budget_s=3600)


def everything() -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows by kind, from PostgreSQL and from the archive's valid files, including duplicates."""
    found = {}
    for kind in KINDS.values():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {kind.selected} FROM {kind.table.name} k")
            rows = [tuple(row) for row in cursor.fetchall()]
        for file in ArchivedFile.objects.filter(kind=kind.name, state=ArchivedState.LIVE):
            path = parquet.checked(file, whole=True)
            rows += _as_read(reading.rows_of(path, kind))
        found[str(kind.name)] = sorted(rows, key=lambda row: row[0])
    return found


def _as_read(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the table's rows, with times as microseconds."""
    return [tuple(row.values()) for row in table.cast(_whole(table.schema)).to_pylist()]


def _whole(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times as whole numbers."""

    def whole(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(whole(kind.value_type))
        return pa.int64() if pa.types.is_timestamp(kind) else kind

    return pa.schema([(field.name, whole(field.type)) for field in schema])


def move(name: ArchivedKind, runs: Sequence[Run], month: date) -> ArchivedFile:
    """Move the rows of these runs and this month from PostgreSQL to one file, which has a row group for ten rows each.

    So a month can have several files that overlap in time.
    """
    kind, following = KINDS[name], (month + timedelta(days=31)).replace(day=1)
    numbers = _whole(kind.schema)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {kind.selected} FROM {kind.table.name} k {kind.joins}"
            f" WHERE r.id = ANY(%s) AND k.{kind.table.key} >= %s AND k.{kind.table.key} < %s"
            f" ORDER BY {', '.join(f'k.{column}' for column in kind.order)}",
            [[run.pk for run in runs], month, following],
        )
        columns = zip(*cursor.fetchall(), strict=True)
        arrays = [pa.array(column, each.type) for column, each in zip(columns, numbers, strict=True)]
        table = pa.table(arrays, schema=numbers).cast(kind.schema)
        cursor.execute(f"DELETE FROM {kind.table.name} WHERE id = ANY(%s)", [table["id"].to_pylist()])
    directory = location.directory_of(name, runs[0].job.cluster_id, month)
    made = Path(settings.ARCHIVE) / directory / f"{uuid.uuid4().hex}.parquet"
    made.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, made, row_group_size=10, write_page_checksum=True, store_schema=False, use_dictionary=False)
    at, ids = (pc.min_max(table[column]).as_py() for column in (kind.table.key, "id"))
    by_run = table["run_id"].value_counts().to_pylist() if "run_id" in table.column_names else []
    return ArchivedFile.objects.create(
        kind=name,
        cluster_id=runs[0].job.cluster_id,
        month=month,
        since=at["min"],
        until=at["max"] + timedelta(microseconds=1),
        path=f"{directory}/{made.name}",
        rows=table.num_rows,
        size=made.stat().st_size,
        sha256=sha256_of(made),
        footer_sha256=parquet.footer_sha256(made),
        least_id=ids["min"],
        greatest_id=ids["max"],
        runs=[each["values"] for each in by_run],
        rows_by_run=[each["counts"] for each in by_run],
        state=ArchivedState.LIVE,
    )


def take_partitions_back() -> None:
    """Drop the partitions that `cover` created in a test whose transaction is not rolled back."""
    for table in partitions.TABLES:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {table.name} CASCADE")
            for each in partitions.partitions_of(table):
                if each.start is not None and each.end is not None and each.end < NOW - timedelta(days=30):
                    partitions.drop_oldest(table, each.name, each.end, "id", [])
