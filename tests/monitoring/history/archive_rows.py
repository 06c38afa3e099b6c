"""Builder of rows of a week in August, which tests archive, and reader of all rows from PostgreSQL and the archive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from django.db import connection, transaction

from monitoring.history import partitions
from monitoring.history.archive import cycle, parquet
from monitoring.history.archive.kinds import KINDS
from monitoring.models import ArchivedFile, ArchivedState, Checkpoint, CounterSample, OperatorCheckpoint, Run
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from tests.monitoring.conftest import Rows
from tests.monitoring.reported import done

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OLD = datetime(2026, 8, 13, 12, tzinfo=UTC)  # a Thursday
TOLD = done(
    WorkReason.ARCHIVED(what="checkpoints and operators of 10 August to 16 August 2026"),
    WorkReason.ARCHIVED(what="samples of 10 August to 16 August 2026"),
)


def fill(rows: Rows, count: int = 120, every: timedelta = timedelta(minutes=20), **values: Any) -> Run:
    """Store a run with `count` checkpoints from OLD on, and 100 newer ones.

    With the newer ones, no checkpoint of August is among the newest of the run.
    """
    run = rows.run(rows.job(), started_at=OLD)
    checkpoints(run, [OLD + number * every for number in range(count)], 1, **values)
    checkpoints(run, [NOW - timedelta(minutes=100 - number) for number in range(100)], 1001)
    return run


def checkpoints(run: Run, times: list[datetime], first: int, **values: Any) -> None:
    made = Checkpoint.objects.bulk_create(_checkpoint(run, first + n, at, values) for n, at in enumerate(times))
    OperatorCheckpoint.objects.bulk_create(_operator(each, name) for each in made for name in ("source", "sink"))
    CounterSample.objects.bulk_create(
        CounterSample(run=run, at=at, restored=0, total=first, in_progress=0, completed=n, failed=0)
        for n, at in enumerate(times)
    )


def _checkpoint(run: Run, number: int, at: datetime, values: dict[str, Any]) -> Checkpoint:
    failed = number % 10 == 0
    figures = {
        "run": run,
        "checkpoint_id": number,
        "triggered_at": at,
        "status": "FAILED" if failed else "COMPLETED",
        "failure_message": "Zeile 1\nline \"2\", ',' ☃" if failed else "",
        "latest_ack_at": None if failed else at + timedelta(seconds=2, microseconds=number),
        "end_to_end_duration": None if failed else 1000 + number,
        "state_size": None if failed else number * 7919,
        "external_path": "" if failed else f"file:/checkpoints/{run.engine_job_id}/chk-{number}",
        "discarded": True,
        "final": True,
    }
    return Checkpoint(**figures | values)


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
            rows += [row for table in parquet.groups(path, kind) for row in _as_read(table)]
        found[str(kind.name)] = sorted(rows, key=lambda row: row[0])
    return found


def _as_read(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the table's rows, with times as microseconds."""

    def whole(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(whole(kind.value_type))
        return pa.int64() if pa.types.is_timestamp(kind) else kind

    schema = pa.schema([(field.name, whole(field.type)) for field in table.schema])
    return [tuple(row.values()) for row in table.cast(schema).to_pylist()]


def take_partitions_back() -> None:
    """Drop the partitions that `cover` created in a test whose transaction is not rolled back."""
    for table in partitions.TABLES:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {table.name} CASCADE")
            for each in partitions.partitions_of(table):
                if each.start is not None and each.end is not None and each.end < NOW - timedelta(days=30):
                    partitions.drop_oldest(table, each.name, each.end, "id", [])
