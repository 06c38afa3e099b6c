"""Read the stored roll-ups of hours that a batch needs to compute days: those of the same days that did not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from .checkpoints import connected
from .columns import (
    DAY,
    FORGOTTEN_WITHIN_S,
    HOUR,
    MINUTE,
    MINUTES_KEPT_S,
    OPERATOR_ROLLUPS,
    ROLLUPS,
    VERSION,
)

_OTHER_HOURS = """
SELECT {columns} FROM {table} r
JOIN (
    SELECT DISTINCT job_id, hour / {day} * {day} AS day
    FROM unnest({jobs}::bigint[], {hours}::bigint[]) t (job_id, hour)
) d ON d.job_id = r.job_id AND r.start >= to_timestamp(d.day) AND r.start < to_timestamp(d.day + {day})
WHERE r.seconds = {hour} AND NOT EXISTS (
    SELECT FROM unnest({jobs}::bigint[], {hours}::bigint[]) t (job_id, hour)
    WHERE t.job_id = r.job_id AND to_timestamp(t.hour) = r.start)
"""
# By the database's clock, by which minutes are deleted: the clock of this machine may be ahead.
_LIMITS = """
SELECT coalesce((SELECT date_part('epoch', hours_from) FROM monitoring_rollupprogress), 0)::bigint,
       floor(date_part('epoch', now()))::bigint
"""


class NotReadable(ValueError):
    """The stored roll-ups cannot be used; the message says why. The job ends, and starts again as its strategy says."""


@dataclass(frozen=True)
class StoredHours:
    """The roll-ups of the other hours, and the times (seconds since 1970) from which minutes and hours are stored.

    others: of jobs, in the schema ROLLUPS. operators: in the schema OPERATOR_ROLLUPS.
    """

    others: pa.Table
    operators: pa.Table
    hours_from: int
    minutes_from: int


def stored_hours(dsn_file: str, touched: pa.Table) -> StoredHours:
    """Return what a batch needs. `touched`: the jobs and hours (seconds since 1970) that the batch computes."""
    jobs, hours = (column.to_pylist() for column in touched.columns)
    with connected(dsn_file) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with connection.transaction():  # one snapshot: hours are deleted only after `hours_from` is set
            hours_from, now = connection.execute(_LIMITS).fetchall()[0]
            others = _others(connection, "monitoring_rollup", ROLLUPS, jobs, hours)
            operators = _others(connection, "monitoring_operatorrollup", OPERATOR_ROLLUPS, jobs, hours)
    if unknown := set(others["version"].to_pylist()) - {VERSION}:
        raise NotReadable(f"there are roll-ups of version {min(unknown)}, and this program writes version {VERSION}")
    _check_whole_days(jobs, hours, hours_from)
    oldest = now - MINUTES_KEPT_S - FORGOTTEN_WITHIN_S
    known = operators.filter(pc.equal(operators["version"], VERSION))  # this program reads the hours of others again
    return StoredHours(others, known, hours_from, oldest // MINUTE * MINUTE)


def _others(
    connection: psycopg.Connection[Any], table: str, schema: pa.Schema, jobs: Sequence[int], hours: Sequence[int]
) -> pa.Table:
    columns = sql.SQL(", ").join(sql.SQL("r.{}").format(sql.Identifier(name)) for name in schema.names)
    known = {"jobs": jobs, "hours": hours, "day": DAY, "hour": HOUR}
    values = {name: sql.Literal(value) for name, value in known.items()}
    statement = sql.SQL(_OTHER_HOURS).format(columns=columns, table=sql.Identifier(table), **values)
    found = connection.execute(statement).fetchall()
    columns_of = zip(*found, strict=True) if found else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns_of, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _check_whole_days(jobs: Sequence[int], hours: Sequence[int], hours_from: int) -> None:
    """Raise NotReadable if a day without stored hours is computed from some of its hours only.

    The source plans whole days for such days. Hours may be deleted between the plan and this batch.
    """
    planned = Counter((job, hour // DAY) for job, hour in zip(jobs, hours, strict=True) if hour < hours_from)
    if any(number < DAY // HOUR for number in planned.values()):
        raise NotReadable("roll-ups of hours were deleted after this batch was planned; the next start plans it again")
