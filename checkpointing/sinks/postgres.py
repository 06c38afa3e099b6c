"""Exactly-once into PostgreSQL: rows and the batch's number in one transaction, older attempts fenced off.

    counts.writeStream.outputMode("update").foreachBatch(PostgresSink(dsn, "counts", key=["word"]))

A row replaces the one with its key. Together with a job that is restored from a checkpoint and reads its input again,
each key ends up with the value that all input together gives; while it catches up, older values may be seen.
PostgreSQL 15 or newer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from checkpointing.sinks import context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_FENCE = sql.Identifier("waymark_sink_fence")
_ROW = "waymark_row"
_TYPES = {
    "string": "text", "boolean": "boolean", "binary": "bytea", "byte": "smallint", "short": "smallint",
    "integer": "integer", "long": "bigint", "float": "real", "double": "double precision", "date": "date",
    "timestamp": "timestamptz", "timestamp_ntz": "timestamp",
}  # fmt: skip


class FencedOut(RuntimeError):
    """A newer attempt of the job writes to this table: this one must end."""


class UnsupportedColumn(TypeError):
    """A column's type has no counterpart in PostgreSQL here; the text names both."""


@dataclass(frozen=True)
class Fence:
    """Who wrote last: the batch `batch` of `timeline`, by attempt `attempt`."""

    timeline: str
    attempt: int
    batch: int

    def admits(self, timeline: str, attempt: int, batch: int) -> bool:
        """False for a batch that is in the table already; FencedOut for an attempt older than the last writer.

        A new timeline counts its batches anew: its state is older than what the table has seen.
        """
        if attempt < self.attempt:
            raise FencedOut(f"attempt {attempt} may not write: attempt {self.attempt} has written since")
        return timeline != self.timeline or batch > self.batch


class PostgresSink:
    """A function for `foreachBatch`. `query` tells sinks of one job apart; by default it is the table's name.

    The table is made when it is missing; one that exists needs a unique constraint over `key`. FencedOut, psycopg.Error
    or UnsupportedColumn end the query; nothing of the batch is in the table then.
    """

    def __init__(self, dsn: str, table: str, *, key: Sequence[str], query: str | None = None) -> None:
        if not key:
            raise ValueError("key: name at least one column that tells rows apart")
        self._dsn = dsn
        self._table = table
        self._key = list(key)
        self._query = query or table
        self._connection: psycopg.Connection[Any] | None = None
        self._made = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        job = context.current()
        columns = _columns(frame)
        missing = [name for name in self._key if name not in columns]
        if missing:
            raise ValueError(f"key: the rows have no column {', '.join(missing)}; they have {', '.join(columns)}")
        connection = self._connected()
        if not self._made:
            self._make_tables(connection, columns)
        with connection.transaction():
            if self._fence(connection, job).admits(job.timeline, job.attempt, batch):
                self._upsert(connection, frame, list(columns))
                self._record(connection, job, batch)
                return
        log.info("batch %d of %s is in %s already", batch, job.timeline, self._table)
        # The rows must be computed all the same: Spark's state moves on only with them.
        frame.write.format("noop").mode("overwrite").save()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = psycopg.connect(self._dsn, autocommit=True, application_name="waymark sink")
        return self._connection

    def _make_tables(self, connection: psycopg.Connection[Any], columns: dict[str, str]) -> None:
        with connection.transaction():
            # CREATE … IF NOT EXISTS alone fails when two do it at once.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('waymark sink'))")
            connection.execute(
                sql.SQL(
                    "CREATE TABLE IF NOT EXISTS {} (job_id text, query text, timeline text NOT NULL,"
                    " attempt bigint NOT NULL, batch bigint NOT NULL, PRIMARY KEY (job_id, query))"
                ).format(_FENCE)
            )
            connection.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, UNIQUE NULLS NOT DISTINCT ({}))").format(
                    self._identifier(), _definitions(columns), _names(self._key)
                )
            )
        self._made = True

    def _identifier(self) -> sql.Identifier:
        return sql.Identifier(*self._table.split("."))

    def _fence(self, connection: psycopg.Connection[Any], job: context.SinkContext) -> Fence:
        """Locked until the transaction ends: two writers go one after the other, and the older one sees the newer."""
        connection.execute(
            sql.SQL("INSERT INTO {} VALUES (%s, %s, '', -1, -1) ON CONFLICT DO NOTHING").format(_FENCE),
            (job.job_id, self._query),
        )
        row = connection.execute(
            sql.SQL("SELECT timeline, attempt, batch FROM {} WHERE job_id = %s AND query = %s FOR UPDATE").format(
                _FENCE
            ),
            (job.job_id, self._query),
        ).fetchone()
        if row is None:
            raise RuntimeError(f"the fence of {self._query} was deleted while it was read")
        return Fence(*row)

    def _record(self, connection: psycopg.Connection[Any], job: context.SinkContext, batch: int) -> None:
        connection.execute(
            sql.SQL("UPDATE {} SET timeline = %s, attempt = %s, batch = %s WHERE job_id = %s AND query = %s").format(
                _FENCE
            ),
            (job.timeline, job.attempt, batch, job.job_id, self._query),
        )

    def _upsert(self, connection: psycopg.Connection[Any], frame: DataFrame, columns: list[str]) -> None:
        """Through a temporary table by COPY; of rows with the same key the last one counts."""
        staging = sql.Identifier("waymark_staging")
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT 0::bigint AS {}, {} FROM {} LIMIT 0").format(
                staging, sql.Identifier(_ROW), _names(columns), self._identifier()
            )
        )
        copy_into = sql.SQL("COPY {} ({}, {}) FROM STDIN").format(staging, sql.Identifier(_ROW), _names(columns))
        with connection.cursor() as cursor, cursor.copy(copy_into) as copy:
            for number, row in enumerate(_rows(frame)):
                copy.write_row((number, *row))
        values = [name for name in columns if name not in self._key]
        connection.execute(
            sql.SQL(
                "INSERT INTO {} ({}) SELECT DISTINCT ON ({}) {} FROM {} ORDER BY {}, {} DESC ON CONFLICT ({}) DO {}"
            ).format(
                self._identifier(),
                _names(columns),
                _names(self._key),
                _names(columns),
                staging,
                _names(self._key),
                sql.Identifier(_ROW),
                _names(self._key),
                _update(values),
            )
        )


def _rows(frame: DataFrame) -> Iterator[Sequence[Any]]:
    """One partition in memory at a time, the next one computed meanwhile."""
    yield from frame.toLocalIterator(prefetchPartitions=True)


def _columns(frame: DataFrame) -> dict[str, str]:
    """PostgreSQL's types by column."""
    found = {}
    for field in frame.schema.fields:
        name = field.dataType.typeName()
        if name == "decimal":
            found[field.name] = f"numeric({field.dataType.precision},{field.dataType.scale})"
        elif name in _TYPES:
            found[field.name] = _TYPES[name]
        else:
            raise UnsupportedColumn(
                f"column {field.name!r} is a {name}; cast it to one of: decimal, {', '.join(_TYPES)}"
            )
    return found


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in columns)


def _definitions(columns: dict[str, str]) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items()
    )


def _update(values: Sequence[str]) -> sql.Composable:
    if not values:
        return sql.SQL("NOTHING")
    assignments = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in values]
    return sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(assignments))
