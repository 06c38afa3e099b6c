"""A pipeline without Spark: it reads the source batch by batch, as Spark does, and stores the same roll-ups."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from django.db import connection
from django.utils import timezone
from psycopg import sql

from monitoring.history.archive.moving import Mover
from monitoring.history.partitions import cover
from monitoring.history.pipeline.changes import CheckpointChangesReader
from monitoring.history.pipeline.checkpoints import checkpoints_of, connected
from monitoring.history.pipeline.columns import (
    CHANGES,
    COUNTS,
    DAY,
    FIGURES,
    HOUR,
    MINUTE,
    MINUTES_KEPT_S,
    OPERATOR_FIGURES,
    OPERATOR_QUANTILES,
    REASON,
    ROLLUPS,
    VERSION,
)
from monitoring.history.pipeline.stored import stored_hours
from monitoring.history.rolling import rolled
from monitoring.history.sketches import merged, quantiles
from monitoring.models import OperatorRollup
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import OLD, take_partitions_back
from tests.monitoring.history.percentiles import near
from tests.waiting import eventually

ALWAYS = datetime(1, 1, 1, tzinfo=UTC)
Rollups = dict[Any, dict[str, Any]]


def dsn() -> str:
    return str(connection.cursor().connection.info.dsn) + f" password={connection.settings_dict['PASSWORD']}"


def autovacuum_is_idle() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND backend_xid IS NOT NULL"
        )
        return bool(cursor.fetchone() == (0,))


class Pipeline:
    """A pipeline. `offset` is the position that Spark stores; an older value simulates a restore of older state."""

    def __init__(self, dsn_file: Path, rows_per_batch: int = 1_000_000) -> None:
        self.dsn_file = str(dsn_file)
        self.reader = CheckpointChangesReader(self.dsn_file, rows_per_batch)
        self.offset: dict[str, int] = self.reader.initialOffset()
        self.batches = 0

    def run(self) -> list[dict[str, int]]:
        """Run batches until there is no new row, and return their end offsets."""
        eventually("autovacuum holds no transaction, which would delay the offset", autovacuum_is_idle)
        ends = []
        while (end := self.reader.latestOffset(self.offset)) != self.offset:
            self.batch(self.offset, end)
            self.reader.commit(end)
            self.offset = end
            ends.append(end)
        return ends

    def batch(self, start: dict[str, int], end: dict[str, int]) -> None:
        read = [batch for part in self.reader.partitions(start, end) for batch in self.reader.read(part)]
        write(self._rolled(_without_operators(pa.Table.from_batches(read, CHANGES))))
        self.batches += 1

    def _rolled(self, changes: pa.Table) -> pa.Table:
        """Return what the program stores. Days are computed from their checkpoints, and not from hours."""
        touched = changes.group_by(["job_id", "hour"]).aggregate([])
        stored = stored_hours(self.dsn_file, touched)
        minute = pc.divide(changes["at"], MINUTE)
        recent = pc.greater_equal(changes["at"], stored.minutes_from)
        minutes = rolled(_of_changed(changes.append_column("minute", minute).filter(recent)), MINUTE)
        hours = rolled(changes.filter(pc.greater_equal(changes["hour"], stored.hours_from)), HOUR)
        days = {(row["job_id"], row["hour"] // DAY * DAY) for row in touched.to_pylist()}
        of_days = [(job, day + n * HOUR) for job, day in days for n in range(24)]
        with connected(self.dsn_file) as own:
            whole = checkpoints_of(own, [job for job, _ in of_days], [hour for _, hour in of_days])
        whole = _without_operators(whole)
        return pa.concat_tables([minutes, hours, rolled(whole, DAY)])


def _without_operators(changes: pa.Table) -> pa.Table:
    return changes.filter(changes["operator"].is_null())


def _of_changed(changes: pa.Table) -> pa.Table:
    changed = changes.filter(changes["changed"]).group_by(["job_id", "minute"]).aggregate([])
    return changes.join(changed, ["job_id", "minute"], join_type="left semi")


def write(rollups: pa.Table) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, ROLLUPS.names))
    changes = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in ROLLUPS.names)
    statement = sql.SQL(
        "INSERT INTO monitoring_rollup ({}) VALUES ({}) ON CONFLICT (job_id, seconds, start) DO UPDATE SET {}"
    ).format(columns, sql.SQL(", ").join([sql.Placeholder()] * len(ROLLUPS)), changes)
    with psycopg.connect(dsn()) as own:
        own.cursor().executemany(statement, [tuple(row.values()) for row in rollups.to_pylist()])


@pytest.fixture
def dsn_file(transactional_db: None, tmp_path: Path) -> Path:
    path = tmp_path / "dsn"
    path.write_text(dsn())
    return path


@pytest.fixture
def pipeline(dsn_file: Path) -> Pipeline:
    return Pipeline(dsn_file)


@pytest.fixture
def mover() -> Iterator[Mover]:
    with Mover() as made:
        yield made


@pytest.fixture
def archive(settings, tmp_path: Path) -> Path:
    settings.ARCHIVE = str(tmp_path / "archive")
    return tmp_path / "archive"


@pytest.fixture
def old(pipeline: Pipeline, archive: Path) -> Iterator[Rows]:
    """Create partitions for August as the oldest ones, because the oldest partition is archived first."""
    take_partitions_back()
    cover(OLD)
    yield Rows()
    take_partitions_back()


def differences(seconds: int) -> list[str]:
    """Return the differences between roll-ups of a width and plain SQL over the raw rows, in all figures and sketches.

    Roll-ups of minutes are compared for the time that they are kept.
    """
    oldest = timezone.now() - timedelta(seconds=MINUTES_KEPT_S) if seconds == MINUTE else ALWAYS
    expected, stored = (
        {key: row for key, row in found.items() if key[1] >= oldest} for found in (_by_sql(seconds), _stored(seconds))
    )
    empty = {key for key, row in stored.items() if not any(row[name] for name in COUNTS)}
    keys = (expected.keys() | stored.keys()) - (empty - expected.keys())
    return unlike(expected, {key: row for key, row in stored.items() if key in keys})


def unlike(expected: Rollups, stored: Rollups) -> list[str]:
    """Return the differences between stored roll-ups and those that SQL computes."""
    return [
        f"{key} {name}: {stored.get(key, {}).get(name)!r}, and it is {expected.get(key, {}).get(name)!r}"
        for key in sorted(expected.keys() | stored.keys())
        for name in (expected.get(key) or stored[key])
        if not _fits(expected.get(key, {}).get(name), stored.get(key, {}).get(name))
    ]


def _fits(expected: Any, stored: Any) -> bool:
    """Return whether a figure is stored as SQL computes it. Sketches are compared with the sorted values."""
    if not isinstance(expected, list):
        return bool(expected == stored)
    shares = (0.0, 0.25, 0.5, 0.95, 1.0)
    wanted = [near(expected, share) if expected else None for share in shares]
    return stored is not None and stored.n == len(expected) and quantiles(stored, shares) == wanted


def _stored(seconds: int) -> dict[Any, dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(ROLLUPS.names)} FROM monitoring_rollup WHERE seconds = %s", [seconds])
        rows = [dict(zip(ROLLUPS.names, row, strict=True)) for row in cursor.fetchall()]
    for row in rows:
        for figure in FIGURES:
            row[f"{figure}_sketch"] = merged([row[f"{figure}_sketch"]])
        row["reasons"] = {} if not row["reasons"] else dict(eval(row["reasons"]))
        del row["seconds"], row["version"]
    return {(row.pop("job_id"), row.pop("start")): row for row in rows}


def _by_sql(seconds: int) -> dict[Any, dict[str, Any]]:
    done = "FILTER (WHERE c.status = 'COMPLETED')"
    counts = {
        "completed": "c.status = 'COMPLETED'",
        "failed": "c.status = 'FAILED'",
        "pending": "c.status = 'IN_PROGRESS'",
        "completed_savepoints": "c.status = 'COMPLETED' AND c.is_savepoint",
        "failed_savepoints": "c.status = 'FAILED' AND c.is_savepoint",
    }
    figures = {
        f"{figure}_{what}": f"{what}(c.{column}) {done}"
        for figure, column in FIGURES.items()
        for what in ("sum", "min", "max")
    }
    columns = {name: f"count(*) FILTER (WHERE {which})" for name, which in counts.items()} | figures
    start = f"to_timestamp(floor(date_part('epoch', c.triggered_at) / {seconds}) * {seconds})"
    rows = "monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id"
    found: dict[Any, dict[str, Any]] = {}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT r.job_id, {start}, {', '.join(columns.values())} FROM {rows} GROUP BY 1, 2")
        for job, at, *values in cursor.fetchall():
            whole = [value if value is None else int(value) for value in values]
            empty: dict[str, Any] = {f"{figure}_sketch": [] for figure in FIGURES} | {"reasons": {}}
            found[job, at] = dict(zip(columns, whole, strict=True)) | empty
        for figure, column in FIGURES.items():
            cursor.execute(
                f"SELECT r.job_id, {start}, array_agg(c.{column} ORDER BY c.{column}) FROM {rows}"
                f" WHERE c.status = 'COMPLETED' AND c.{column} IS NOT NULL GROUP BY 1, 2"
            )
            for job, at, values in cursor.fetchall():
                found[job, at][f"{figure}_sketch"] = values
        cursor.execute(
            f"SELECT r.job_id, {start}, {REASON}, count(*) FROM {rows} WHERE c.status = 'FAILED' GROUP BY 1, 2, 3"
        )
        for job, at, reason, count in cursor.fetchall():
            found[job, at]["reasons"][reason] = count
    return found


def operator_differences(seconds: int) -> list[str]:
    """Return the differences between roll-ups of operators and plain SQL over the raw rows.

    Roll-ups of minutes are compared for the time that they are kept.
    """
    oldest = timezone.now() - timedelta(seconds=MINUTES_KEPT_S) if seconds == MINUTE else ALWAYS
    expected, stored = (
        {key: row for key, row in found.items() if key[1] >= oldest}
        for found in (operators_by_sql(seconds), stored_operators(seconds))
    )
    return unlike(expected, stored)


def operators_by_sql(seconds: int) -> Rollups:
    """Return the roll-ups of operators by job, start and operator, as plain SQL computes them from PostgreSQL's rows.

    Instead of the sketch they have the sorted values.
    """
    value = f"o.{FIGURES[OPERATOR_QUANTILES]}"
    values = f"array_agg({value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL)"
    columns = {
        "completed": "count(*)",
        **{
            f"{figure}_{what}": f"{what}(o.{FIGURES[figure]})::bigint"
            for figure in OPERATOR_FIGURES
            for what in ("sum", "min", "max")
        },
        f"{OPERATOR_QUANTILES}_sketch": f"coalesce({values}, '{{}}')",
    }
    start = f"to_timestamp(floor(date_part('epoch', c.triggered_at) / {seconds}) * {seconds})"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT r.job_id, {start}, o.vertex_id, {', '.join(columns.values())}"
            " FROM monitoring_operatorcheckpoint o JOIN monitoring_checkpoint c ON c.id = o.checkpoint_id"
            " JOIN monitoring_run r ON r.id = c.run_id WHERE c.status = 'COMPLETED' GROUP BY 1, 2, 3"
        )
        return {tuple(row[:3]): dict(zip(columns, row[3:], strict=True)) for row in cursor.fetchall()}


def stored_operators(seconds: int) -> Rollups:
    """Return the stored roll-ups, with the sketch as an object."""
    found: Rollups = {}
    for row in OperatorRollup.objects.filter(seconds=seconds, completed__gt=0).values():
        key = row.pop("job_id"), row.pop("start"), row.pop("operator")
        assert (row.pop("seconds"), row.pop("version")) == (seconds, VERSION)
        found[key] = row | {f"{OPERATOR_QUANTILES}_sketch": merged([row[f"{OPERATOR_QUANTILES}_sketch"]])}
    return found
