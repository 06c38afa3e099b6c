"""Exactly-once into PostgreSQL: a batch's rows and its number in one transaction, older attempts fenced off.

    rows.writeStream.foreachBatch(PostgresSink(dsn, "payments"))                                   # append
    counts.writeStream.outputMode("update").foreachBatch(PostgresSink(dsn, "counts", key=["word"]))  # upsert

`write_together` stores the rows of several tables in one transaction.

Without `key` every row is added once. When a job returns to an older state, the rows of its abandoned batches are moved
from the table to `<table>_abandoned`, in a transaction before the first new row. They are not deleted: a later restore
of a state that contains them moves them back (see `lineage`).

With `key` a row replaces the one with its key. A restored job processes its input again and writes each key again. So
in the end each key has the value of all input together. Meanwhile newer values may be visible. A key that only the
abandoned batches wrote, such as one of processing time, stays. With `history` the table itself returns exactly to the
restored state, at the price of a second table with every version of every row.

PostgreSQL 15 or newer. The executors need psycopg and pyarrow, and reach the server by the same address.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from checkpointing.sinks import context, postgres_fence
from checkpointing.sinks.context import FencedOut, SinkContext
from checkpointing.sinks.postgres_copy import STAGING_COLUMNS, TASK_SCHEMA, copy_partition
from checkpointing.sinks.postgres_fence import SinkTableTaken
from checkpointing.sinks.postgres_tables import (
    AppendedTable,
    KeyedTable,
    Staged,
    Table,
    column_names,
    identifier,
    names,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["FencedOut", "PostgresSink", "SinkTableTaken", "UnsupportedColumn", "write_together"]

log = logging.getLogger(__name__)

_TYPES = {
    "string": "text", "boolean": "boolean", "binary": "bytea", "byte": "smallint", "short": "smallint",
    "integer": "integer", "long": "bigint", "float": "real", "double": "double precision", "date": "date",
    "timestamp": "timestamptz", "timestamp_ntz": "timestamp",
}  # fmt: skip
_LEFTOVER_WAIT = "1s"


class UnsupportedColumn(TypeError):
    """A column's type has no counterpart in PostgreSQL here. The text names both."""


class PostgresSink:
    """A function for `foreachBatch`. A query needs one sink for each table (see `write_together`).

    Missing tables are created. An existing one needs a unique constraint over `key`. `query` is the streaming query's
    name, by default that of the batch's query. FencedOut, SinkTableTaken, psycopg.Error or UnsupportedColumn end the
    query; nothing of the batch is in the table then.

    A table with the output of another job is refused, unless this job was started from a snapshot of that job.
    `shared`: several unrelated jobs write to the table.
    """

    goes_back = True

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: Sequence[str] | None = None,
        history: bool = False,
        query: str | None = None,
        shared: bool = False,
    ) -> None:
        if isinstance(key, str) or (key is not None and not key):
            raise ValueError(
                f"key={key!r} is not allowed; a list of columns that identify a row, or None to append rows"
            )
        if history and key is None:
            raise ValueError("history=True is allowed only with a key; without a key, the sink keeps all rows anyway")
        self.dsn = dsn
        self._name = table
        self._key = list(key or ())
        self._table: Table = AppendedTable(table) if key is None else KeyedTable(table, key, history=history)
        self._query = query
        self._shared = shared
        self._writers: dict[str, _Writer] = {}
        self._lock = threading.Lock()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        write_together([(self, frame)], batch)

    def stage(self, frame: DataFrame, job: SinkContext, batch: int) -> StagedBatch | None:
        """Copy the rows into the staging table. Return None if the batch is in the table already."""
        columns = _columns(frame)
        missing = [name for name in self._key if name not in columns]
        if missing:
            raise ValueError(f"key: the rows have no column {', '.join(missing)}; they have {', '.join(columns)}")
        query = self._query or context.query_of(frame)
        with self._lock:
            writer = self._writers.setdefault(query, _Writer(self.dsn, self._name, self._table, query, self._shared))
        return writer.stage(frame, columns, job, batch)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def write_together(rows: Sequence[tuple[PostgresSink, DataFrame]], batch: int) -> None:
    """Store a batch's rows of several tables of one database in one transaction, for a function for `foreachBatch`.

    Raises:
        The exceptions of PostgresSink. Then nothing of the batch is in any of the tables.
    """
    if len({sink.dsn for sink, _ in rows}) > 1:
        raise ValueError("rows: the tables are in several databases; one transaction needs tables of one database")
    job = context.current()
    staged = [found for sink, frame in rows if (found := sink.stage(frame, job, batch))]
    if not staged:
        return
    with staged[0].connection.transaction():
        for each in staged:
            each.store(staged[0].connection, job, batch)
    for each in staged:
        each.claim.batch = batch


@dataclass(frozen=True)
class StagedBatch:
    """The rows of a batch in the staging table of a table."""

    table: Table
    columns: Sequence[str]
    claim: postgres_fence.Claim
    rows: Staged
    connection: psycopg.Connection[Any]

    def store(self, connection: psycopg.Connection[Any], job: SinkContext, batch: int) -> None:
        """Move the rows into the table, in the caller's transaction."""
        postgres_fence.record(connection, self.claim, job, batch)
        self.table.take(connection, self.rows, self.columns, self.claim, batch)
        connection.execute(sql.SQL("TRUNCATE {}").format(self.rows.table))


class _Writer:
    """The writer of one query: its connection, and its claim after that is made. Used by one thread."""

    def __init__(self, dsn: str, name: str, table: Table, query: str, shared: bool) -> None:
        self._shared = shared
        self._dsn = dsn
        self._name = name
        self._table = table
        self._query = query
        self._connection: psycopg.Connection[Any] | None = None
        self._claimed_for: SinkContext | None = None
        self._claim = postgres_fence.Claim(0, 0, -1)
        self._staging = sql.Identifier("")

    def stage(self, frame: DataFrame, columns: dict[str, str], job: SinkContext, batch: int) -> StagedBatch | None:
        connection = self._connected()
        if self._claimed_for != job:
            self._make_claim(connection, columns, job)
        if batch <= self._claim.batch:
            log.info("batch %d of timeline %s is in %s already", batch, job.timeline, self._name)
            # The rows must be computed nevertheless, because only that advances Spark's state.
            frame.write.format("noop").mode("overwrite").save()
            return None
        postgres_fence.check(connection, self._claim, job)  # an early check that saves work; the commit checks again
        rows = self._copied(connection, frame, columns)
        return StagedBatch(self._table, list(columns), self._claim, rows, connection)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = psycopg.connect(self._dsn, autocommit=True, application_name="waymark sink")
        return self._connection

    def _make_claim(self, connection: psycopg.Connection[Any], columns: dict[str, str], job: SinkContext) -> None:
        """Fence off older attempts, and make the table match this attempt's state."""
        with connection.transaction():
            postgres_fence.create_tables(connection)
            if not column_names(connection, identifier(self._name)):
                postgres_fence.forget_unrelated(connection, self._name, job)
            self._table.create(connection, columns)
        with connection.transaction():
            self._claim = postgres_fence.claim(
                connection,
                self._name,
                self._query,
                job,
                lambda moves: self._table.rewind(connection, moves),
                shared=self._shared,
            )
        self._make_staging(connection, columns, job)
        self._claimed_for = job

    def _make_staging(self, connection: psycopg.Connection[Any], columns: dict[str, str], job: SinkContext) -> None:
        """Create a staging table for the attempt. Its rows need not survive a crash of the server."""
        prefix = f"waymark_staging_{self._claim.sink}_"
        leftovers = connection.execute("SELECT tablename FROM pg_tables WHERE starts_with(tablename, %s)", (prefix,))
        for (leftover,) in leftovers.fetchall():
            _drop(connection, sql.Identifier(leftover))
        self._staging = sql.Identifier(f"{prefix}{job.attempt}_{job.timeline[:8]}")
        connection.execute(
            sql.SQL(
                "CREATE UNLOGGED TABLE {} AS"
                " SELECT ''::text AS waymark_task, 0 AS waymark_partition, {} FROM {} LIMIT 0"
            ).format(self._staging, names(list(columns)), identifier(self._name))
        )
        connection.execute(
            sql.SQL("ALTER TABLE {} ADD COLUMN waymark_row bigint GENERATED ALWAYS AS IDENTITY").format(self._staging)
        )

    def _copied(self, connection: psycopg.Connection[Any], frame: DataFrame, columns: dict[str, str]) -> Staged:
        copied = names([*STAGING_COLUMNS, *columns])
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(self._staging, copied).as_string(connection)
        binary = [name for name, kind in columns.items() if kind == "bytea"]
        tasks = frame.mapInArrow(copy_partition(self._dsn, copy, binary), TASK_SCHEMA).collect()
        return Staged(self._staging, [task["task"] for task in tasks])


def _drop(connection: psycopg.Connection[Any], table: sql.Identifier) -> None:
    """Drop a staging table of an earlier attempt, unless one of its tasks still writes there. Such rows never count."""
    try:
        with connection.transaction():
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LEFTOVER_WAIT)))
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
    except psycopg.errors.LockNotAvailable:
        log.info("%s is still in use and stays for now", table.as_string(connection))


def _columns(frame: DataFrame) -> dict[str, str]:
    """Return PostgreSQL's types by column."""
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
