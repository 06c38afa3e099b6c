"""What a task does with its partition: the checkpoints of whole hours become roll-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from .changes import connected
from .columns import CHANGES, DAY, HOUR, MINUTES_KEPT_S, ROLLUPS
from .rolling import by_day, by_hour, by_minute
from .sketch import READ, VERSION, UnknownSketch

# The hours of the touched days that were not touched themselves stand as an earlier batch left them.
_OTHER_HOURS = """
SELECT {columns} FROM monitoring_rollup r
JOIN (
    SELECT DISTINCT job_id, hour / {day} * {day} AS day
    FROM unnest({jobs}::bigint[], {hours}::bigint[]) t (job_id, hour)
) d ON d.job_id = r.job_id AND r.start >= to_timestamp(d.day) AND r.start < to_timestamp(d.day + {day})
WHERE r.seconds = {hour} AND NOT EXISTS (
    SELECT FROM unnest({jobs}::bigint[], {hours}::bigint[]) t (job_id, hour)
    WHERE t.job_id = r.job_id AND to_timestamp(t.hour) = r.start)
"""


def rolled_up(dsn_file: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: a partition's checkpoints, of whole hours, as roll-ups of minutes, hours and days."""

    def roll(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        checkpoints = pa.Table.from_batches(list(batches), CHANGES)
        if not checkpoints.num_rows:
            return
        hours = by_hour(checkpoints)
        with connected(dsn_file) as connection:
            minutes = by_minute(checkpoints, _now(connection) - MINUTES_KEPT_S - HOUR)
            days = by_day(pa.concat_tables([hours, _other_hours(connection, hours)]))
        for table in (minutes, hours, days):
            yield from table.to_batches(max_chunksize=10_000)

    return roll


def _now(connection: psycopg.Connection[Any]) -> int:
    """By the clock that forgets minutes: this machine's may be ahead, and minutes would stay as they were."""
    return int(connection.execute("SELECT floor(date_part('epoch', now()))::bigint").fetchall()[0][0])


def _other_hours(connection: psycopg.Connection[Any], hours: pa.Table) -> pa.Table:
    starts = [int(start.timestamp()) for start in hours["start"].to_pylist()]
    statement = sql.SQL(_OTHER_HOURS).format(
        columns=sql.SQL(", ").join(sql.SQL("r.{}").format(sql.Identifier(name)) for name in ROLLUPS.names),
        jobs=sql.Literal(hours["job_id"].to_pylist()),
        hours=sql.Literal(starts),
        day=sql.Literal(DAY),
        hour=sql.Literal(HOUR),
    )
    found = connection.execute(statement).fetchall()
    version = ROLLUPS.names.index("version")
    others = {row[version] for row in found} - READ.keys()
    if others:
        raise UnknownSketch(f"there are roll-ups of version {min(others)}, and this program writes version {VERSION}")
    columns = list(zip(*found, strict=True)) if found else [()] * len(ROLLUPS)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, ROLLUPS, strict=True)], schema=ROLLUPS
    )
