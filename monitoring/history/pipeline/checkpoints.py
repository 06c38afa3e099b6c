"""Read checkpoints of whole hours from the database as Arrow tables: by COPY, whose output pyarrow parses."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from .columns import CHANGES, DAY, FIGURES, HOUR, MINUTE, OPERATOR_FIGURES, REASON

# SQL expression: the hour of a time, in seconds since 1970.
HOUR_OF = "floor(date_part('epoch', {at}) / 3600)::bigint * 3600"
_REASON = REASON.replace("failure_message", "k.failure_message")
# OFFSET 0 makes PostgreSQL read run by run with an index, instead of scanning all jobs of a week.
_CHECKPOINTS = f"""
COPY (
    SELECT b.job_id, b.hour, c.at, c.status, c.is_savepoint, c.reason, {{figures}}, c.changed, NULL
    FROM unnest({{jobs}}::bigint[], {{hours}}::bigint[]) AS b (job_id, hour)
    LEFT JOIN (
        SELECT r.job_id, {HOUR_OF.format(at="k.triggered_at")} AS hour,
               floor(date_part('epoch', k.triggered_at))::bigint AS at, k.status, k.is_savepoint, {{columns}},
               CASE WHEN k.status = 'FAILED' THEN {_REASON} END AS reason, k.changed_in >= {{since}} AS changed
        FROM monitoring_run r CROSS JOIN LATERAL (
            SELECT triggered_at, status, is_savepoint, failure_message, changed_in, {{names}} FROM monitoring_checkpoint
            WHERE run_id = r.id
              AND triggered_at >= to_timestamp({{first}}) AND triggered_at < to_timestamp({{last}} + {HOUR}) OFFSET 0
        ) k
        WHERE r.job_id IN (SELECT * FROM unnest({{jobs}}::bigint[]))
    ) c ON c.job_id = b.job_id AND c.hour = b.hour
    UNION ALL
    SELECT b.job_id, b.hour, floor(date_part('epoch', d.triggered_at))::bigint, NULL, NULL, NULL, {{nothing}},
           d.deleted_in >= {{since}}, NULL
    FROM unnest({{jobs}}::bigint[], {{hours}}::bigint[]) AS b (job_id, hour)
    JOIN monitoring_checkpointdeletion d ON d.job_id = b.job_id
     AND d.triggered_at >= to_timestamp(b.hour) AND d.triggered_at < to_timestamp(b.hour + {HOUR})
) TO STDOUT (FORMAT csv)
"""  # noqa: S608 (constants only)
# Also returns operators with a stored roll-up, so that a roll-up whose checkpoints were deleted becomes empty.
_OPERATORS = f"""
COPY (
    SELECT b.job_id, b.hour, o.at, 'COMPLETED', NULL, NULL, {{figures}}, NULL, o.vertex_id
    FROM unnest({{jobs}}::bigint[], {{hours}}::bigint[]) AS b (job_id, hour)
    JOIN (
        SELECT r.job_id, {HOUR_OF.format(at="k.triggered_at")} AS hour,
               floor(date_part('epoch', k.triggered_at))::bigint AS at, part.vertex_id, {{columns}}
        FROM monitoring_run r CROSS JOIN LATERAL (
            SELECT id, triggered_at FROM monitoring_checkpoint
            WHERE run_id = r.id AND status = 'COMPLETED'
              AND triggered_at >= to_timestamp({{first}}) AND triggered_at < to_timestamp({{last}} + {HOUR}) OFFSET 0
        ) k
        JOIN monitoring_operatorcheckpoint part ON part.checkpoint_id = k.id AND part.triggered_at = k.triggered_at
         AND part.triggered_at >= to_timestamp({{first}}) AND part.triggered_at < to_timestamp({{last}} + {HOUR})
        WHERE r.job_id IN (SELECT * FROM unnest({{jobs}}::bigint[]))
    ) o ON o.job_id = b.job_id AND o.hour = b.hour
    UNION ALL
    SELECT b.job_id, b.hour, date_part('epoch', stored.start)::bigint, NULL, NULL, NULL, {{nothing}}, NULL,
           stored.operator
    FROM unnest({{jobs}}::bigint[], {{hours}}::bigint[]) AS b (job_id, hour)
    JOIN monitoring_operatorrollup stored ON stored.job_id = b.job_id AND stored.seconds IN ({MINUTE}, {HOUR}, {DAY})
     AND stored.start >= to_timestamp(b.hour) AND stored.start < to_timestamp(b.hour + {HOUR})
) TO STDOUT (FORMAT csv)
"""  # noqa: S608 (constants only)


def connected(dsn_file: str) -> psycopg.Connection[Any]:
    dsn = Path(dsn_file).read_text().strip()
    return psycopg.connect(dsn, autocommit=True, application_name="waymark history")


def checkpoints_of(
    connection: psycopg.Connection[Any], jobs: Sequence[int], hours: Sequence[int], since: int = 0
) -> pa.Table:
    """Return all checkpoints of these hours of jobs, and the figures of their operators, in the schema CHANGES.

    `changed` is true if the transaction `since` or a later one changed the checkpoint.
    """
    days = np.array(hours) // DAY
    found = []
    for day in np.unique(days):  # a query reads everything between its first and last hour
        which = np.flatnonzero(days == day).tolist()
        some = [jobs[n] for n in which], [hours[n] for n in which]
        found += [copied(connection, each, CHANGES) for each in (_checkpoints(*some, since), _operators(*some))]
    return pa.concat_tables(found) if found else CHANGES.empty_table()


def _checkpoints(jobs: list[int], hours: list[int], since: int) -> sql.Composed:
    return sql.SQL(_CHECKPOINTS).format(
        figures=_columns("c.{}"),
        names=_columns("{}"),
        columns=_columns("k.{}"),
        since=sql.Literal(since),
        **_of_hours(jobs, hours),
    )


def _operators(jobs: list[int], hours: list[int]) -> sql.Composed:
    figures = [f"o.{column}" if name in OPERATOR_FIGURES else "NULL" for name, column in FIGURES.items()]
    columns = [f"part.{FIGURES[name]}" for name in OPERATOR_FIGURES]
    listed = {"figures": figures, "columns": columns}
    return sql.SQL(_OPERATORS).format(
        **{name: sql.SQL(", ".join(expressions)) for name, expressions in listed.items()}, **_of_hours(jobs, hours)
    )


def _columns(form: str) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(form).format(sql.Identifier(name)) for name in FIGURES.values())


def _of_hours(jobs: list[int], hours: list[int]) -> dict[str, sql.Composable]:
    return {
        "nothing": sql.SQL(", ").join([sql.SQL("NULL")] * len(FIGURES)),
        "jobs": sql.Literal(jobs),
        "hours": sql.Literal(hours),
        "first": sql.Literal(min(hours)),
        "last": sql.Literal(max(hours)),
    }


def copied(connection: psycopg.Connection[Any], statement: sql.Composed, schema: pa.Schema) -> pa.Table:
    body = io.BytesIO()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for piece in copy:
            body.write(piece)
    if not body.tell():
        return schema.empty_table()
    body.seek(0)
    types = {field.name: field.type for field in schema}
    return csv.read_csv(
        body,
        csv.ReadOptions(column_names=schema.names, use_threads=False),
        convert_options=csv.ConvertOptions(
            column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False, true_values=["t"],
            false_values=["f"], null_values=[""],
        ),
    )  # fmt: skip
