"""The user's table in its two forms: rows are appended, or rows replace the one with their key.

Each form can create its tables, take staged rows, and return to the batches of another timeline, earlier or later ones.
Everything here runs in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg
from psycopg import sql

from checkpointing.sinks.postgres_fence import Claim, NumberedMoves, in_spans

Connection = psycopg.Connection[Any]

TIMELINE, BATCH = "waymark_timeline", "waymark_batch"
_TAGS = (TIMELINE, BATCH)
# Among rows with one key in one batch the last one counts. Partitions have no natural order, so this defines one.
_LAST_STAGED_FIRST = sql.SQL("waymark_partition DESC, waymark_row DESC")


@dataclass(frozen=True)
class Staged:
    """The staged rows of one batch: those of `tasks` in table `table`."""

    table: sql.Identifier
    tasks: Sequence[str]


class Table(Protocol):
    def create(self, connection: Connection, columns: Mapping[str, str]) -> None:
        """Create what is missing. `columns` are PostgreSQL's types by name."""
        ...

    def rewind(self, connection: Connection, moves: NumberedMoves) -> None: ...

    def take(self, connection: Connection, staged: Staged, columns: Sequence[str], claim: Claim, batch: int) -> int:
        """Insert the staged rows and return how many there are."""
        ...


class AppendedTable:
    """A table whose rows have the number of their timeline and batch.

    Rows that no longer count are in `…_abandoned`.
    """

    def __init__(self, name: str) -> None:
        self._table = identifier(name)
        self._abandoned = identifier(name, "_abandoned")
        self._index = sql.Identifier(f"{name.rpartition('.')[2]}_waymark")

    def create(self, connection: Connection, columns: Mapping[str, str]) -> None:
        tags = dict.fromkeys(_TAGS, "bigint")
        _create(connection, "CREATE TABLE IF NOT EXISTS {} ({})", self._table, definitions({**columns, **tags}))
        missing = [tag for tag in _TAGS if tag not in column_names(connection, self._table)]
        if missing:  # the user created the table; otherwise avoid ALTER TABLE, which waits for all readers
            added = [sql.SQL("ADD COLUMN {} bigint").format(sql.Identifier(tag)) for tag in missing]
            connection.execute(sql.SQL("ALTER TABLE {} {}").format(self._table, sql.SQL(", ").join(added)))
        # Batches are stored one after the other, so a block range index of a few pages is enough.
        _create(
            connection, "CREATE INDEX IF NOT EXISTS {} ON {} USING brin ({})", self._index, self._table, names(_TAGS)
        )
        _create(connection, "CREATE TABLE IF NOT EXISTS {} (LIKE {})", self._abandoned, self._table)

    def rewind(self, connection: Connection, moves: NumberedMoves) -> None:
        kept = column_names(connection, self._abandoned)
        columns = [name for name in column_names(connection, self._table) if name in kept]
        for spans, source, target in (
            (moves.away, self._table, self._abandoned),
            (moves.back, self._abandoned, self._table),
        ):
            if spans:
                connection.execute(
                    sql.SQL(
                        "WITH moved AS (DELETE FROM {source} WHERE {rows} RETURNING {columns})"
                        " INSERT INTO {target} ({columns}) SELECT {columns} FROM moved"
                    ).format(source=source, rows=in_spans(spans), columns=names(columns), target=target)
                )

    def take(self, connection: Connection, staged: Staged, columns: Sequence[str], claim: Claim, batch: int) -> int:
        return connection.execute(
            sql.SQL("INSERT INTO {} ({}) SELECT {}, {}, {} FROM {} WHERE waymark_task = ANY({})").format(
                self._table,
                names([*columns, *_TAGS]),
                names(columns),
                sql.Literal(claim.number),
                sql.Literal(batch),
                staged.table,
                sql.Literal(list(staged.tasks)),
            )
        ).rowcount


class KeyedTable:
    """A table in which a row replaces the one with its key.

    With `history` each version of a row is kept in `…_history`, so that the table can return exactly to any batch.
    Without it the table stays unchanged and is corrected as the input is replayed.
    """

    def __init__(self, name: str, key: Sequence[str], *, history: bool) -> None:
        self._name = name
        self._table = identifier(name)
        self._history = identifier(name, "_history") if history else None
        self._key = list(key)

    def create(self, connection: Connection, columns: Mapping[str, str]) -> None:
        _create(
            connection,
            "CREATE TABLE IF NOT EXISTS {} ({}, UNIQUE NULLS NOT DISTINCT ({}))",
            self._table,
            definitions(columns),
            names(self._key),
        )
        if self._history is not None and not column_names(connection, self._history):
            self._create_history(connection, self._history)

    def _create_history(self, connection: Connection, history: sql.Identifier) -> None:
        """Create the history. Existing rows count in every timeline, so they have no number."""
        _create(
            connection,
            "CREATE TABLE {} AS SELECT *, NULL::bigint AS {}, -1::bigint AS {} FROM {}",
            history,
            *map(sql.Identifier, _TAGS),
            self._table,
        )
        index = sql.Identifier(f"{self._name.rpartition('.')[2]}_history_waymark")
        _create(connection, "CREATE INDEX IF NOT EXISTS {} ON {} USING brin ({})", index, history, names(_TAGS))

    def take(self, connection: Connection, staged: Staged, columns: Sequence[str], claim: Claim, batch: int) -> int:
        newest = sql.SQL(
            "SELECT DISTINCT ON ({key}) {columns} FROM {staged}"
            " WHERE waymark_task = ANY({tasks}) ORDER BY {key}, {last}"
        ).format(
            key=names(self._key),
            columns=names(columns),
            staged=staged.table,
            tasks=sql.Literal(list(staged.tasks)),
            last=_LAST_STAGED_FIRST,
        )
        kept: sql.Composable = sql.SQL("")
        if self._history is not None:
            kept = sql.SQL(", kept AS (INSERT INTO {} ({}) SELECT {}, {}, {} FROM newest)").format(
                self._history,
                names([*columns, *_TAGS]),
                names(columns),
                sql.Literal(claim.number),
                sql.Literal(batch),
            )
        replace = self._replace(columns, sql.SQL("newest"))
        return connection.execute(sql.SQL("WITH newest AS ({}){} {}").format(newest, kept, replace)).rowcount

    def _replace(self, columns: Sequence[str], source: sql.Composable) -> sql.Composed:
        values = [name for name in columns if name not in self._key]
        assignments = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in values]
        update = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(assignments)) if values else sql.SQL("NOTHING")
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            self._table, names(columns), names(columns), source, names(self._key), update
        )

    def rewind(self, connection: Connection, moves: NumberedMoves) -> None:
        """Give each key that a moved batch wrote its newest version that counts now. Delete it if there is none."""
        spans = (*moves.away, *moves.back)
        if self._history is None or not spans:
            return
        connection.execute("DROP TABLE IF EXISTS waymark_versions")
        connection.execute(self._newest_versions(self._history, moves))
        columns = [name for name in column_names(connection, self._history) if name not in _TAGS]
        versions = sql.SQL("waymark_versions WHERE waymark_counts")
        connection.execute(self._replace(columns, versions))
        connection.execute(self._delete("{0}.{1} = v.{1}", sql.SQL("true")))
        connection.execute(self._delete("{0}.{1} IS NOT DISTINCT FROM v.{1}", self._some_key_is_null("v.")))

    def _newest_versions(self, history: sql.Identifier, moves: NumberedMoves) -> sql.Composed:
        """Return the newest versions. Among the batches that count, numbers ascend with time, over all timelines."""
        return sql.SQL(
            "CREATE TEMP TABLE waymark_versions ON COMMIT DROP AS SELECT * FROM ("
            " SELECT DISTINCT ON ({key}) *, waymark_live AS waymark_counts,"
            "  bool_or(waymark_moved) OVER (PARTITION BY {key}) AS waymark_concerned"
            " FROM (SELECT *, {live} AS waymark_live, {moved} AS waymark_moved FROM {history}"
            "  WHERE ({key}) IN (SELECT {key} FROM {history} WHERE {moved}) OR {null}) AS all_versions"
            " ORDER BY {key}, waymark_live DESC, {batch} DESC) AS newest WHERE waymark_concerned"
        ).format(
            key=names(self._key),
            live=sql.SQL("({} OR {} IS NULL)").format(in_spans(moves.live), sql.Identifier(TIMELINE)),
            moved=in_spans((*moves.away, *moves.back)),
            history=history,
            null=self._some_key_is_null(""),
            batch=sql.Identifier(BATCH),
        )

    def _some_key_is_null(self, prefix: str) -> sql.Composed:
        """Return a condition for keys that contain NULL.

        `=` never matches NULL, and PostgreSQL cannot use a hash join for a comparison that does.
        """
        each = (sql.SQL("{}{} IS NULL").format(sql.SQL(prefix), sql.Identifier(name)) for name in self._key)
        return sql.SQL("({})").format(sql.SQL(" OR ").join(each))

    def _delete(self, comparison: str, condition: sql.Composable) -> sql.Composed:
        same_key = sql.SQL(" AND ").join(
            sql.SQL(comparison).format(self._table, sql.Identifier(name)) for name in self._key
        )
        return sql.SQL(
            "DELETE FROM {} USING waymark_versions AS v WHERE NOT v.waymark_counts AND ({}) AND ({})"
        ).format(self._table, same_key, condition)


def identifier(name: str, suffix: str = "") -> sql.Identifier:
    """Return the identifier of `schema.table` or `table`."""
    schema, _, table = name.rpartition(".")
    return sql.Identifier(*filter(None, [schema]), table + suffix)


def names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in columns)


def definitions(columns: Mapping[str, str]) -> sql.Composed:
    each = (sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns.items())
    return sql.SQL(", ").join(each)


def column_names(connection: Connection, table: sql.Identifier) -> list[str]:
    """Return the columns that can be written, or [] if there is no such table."""
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
        " AND attgenerated = '' ORDER BY attnum",
        (table.as_string(connection),),
    )
    return [name for (name,) in rows.fetchall()]


def _create(connection: Connection, statement: str, *parts: sql.Composable) -> None:
    connection.execute(sql.SQL(statement).format(*parts))
