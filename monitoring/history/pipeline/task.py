"""The work of a Spark task: compute roll-ups from the checkpoints of whole hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from .checkpoints import checkpoints_of
from .columns import DAY, FORGOTTEN_WITHIN_S, HOUR, MINUTES_KEPT_S, ROLLUPS
from .rolling import by_day, by_hour, by_minute
from .sketch import READ, VERSION, UnknownSketch

# For each day with a changed hour, select the hours that did not change, as an earlier batch stored them.
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
_HOURS_FROM = "SELECT hours_from FROM monitoring_rollupprogress WHERE hours_from IS NOT NULL"
_ALWAYS = datetime(1, 1, 1, tzinfo=UTC)


def rolled_up(
    connection: psycopg.Connection[Any], jobs: Sequence[int], hours: Sequence[int], since: int
) -> Iterator[pa.RecordBatch]:
    """Yield roll-ups of these hours of jobs, of their days, and of changed minutes.

    A minute is changed if the transaction `since` or a later one changed anything in it.
    """
    changes = checkpoints_of(connection, jobs, hours, since)
    if not changes.num_rows:
        return
    made = by_hour(changes)
    minutes = by_minute(changes, _now(connection) - MINUTES_KEPT_S - FORGOTTEN_WITHIN_S)
    kept, days = _of_days(connection, made)
    for table in (minutes, kept, days):
        yield from table.to_batches(max_chunksize=10_000)


def _now(connection: psycopg.Connection[Any]) -> int:
    """Return the time of the database's clock, by which minutes are deleted: this machine's clock may be ahead."""
    return int(connection.execute("SELECT floor(date_part('epoch', now()))::bigint").fetchall()[0][0])


def _of_days(connection: psycopg.Connection[Any], hours: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the roll-ups of hours that are still kept, and the roll-ups of all their days.

    For days whose hourly roll-ups are deleted, the other hours are computed from checkpoints.
    """
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with connection.transaction():  # one snapshot: hours are deleted only after `hours_from` is set
        found = connection.execute(_HOURS_FROM).fetchone()
        is_kept = pc.greater_equal(hours["start"], pa.scalar(found[0] if found else _ALWAYS, hours["start"].type))
        kept, forgotten = hours.filter(is_kept), hours.filter(pc.invert(is_kept))
        others = [_other_hours(connection, kept), *_made_anew(connection, forgotten)]
    return kept, by_day(pa.concat_tables([hours, *others]))


def _made_anew(connection: psycopg.Connection[Any], hours: pa.Table) -> Iterator[pa.Table]:
    """Yield the other hours of these days from checkpoints, one day of all jobs at a time."""
    there = {(row["job_id"], int(row["start"].timestamp())) for row in hours.select(["job_id", "start"]).to_pylist()}
    for day in sorted({at // DAY * DAY for _, at in there}):
        jobs = sorted({job for job, at in there if at // DAY * DAY == day})
        every = ((job, at) for job in jobs for at in range(day, day + DAY, HOUR))
        others = [each for each in every if each not in there]
        if others:
            yield by_hour(checkpoints_of(connection, [job for job, _ in others], [at for _, at in others]))


def _other_hours(connection: psycopg.Connection[Any], hours: pa.Table) -> pa.Table:
    if not hours.num_rows:
        return ROLLUPS.empty_table()
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
