"""Who may write to a table, and whose batches are in it: two small tables of Waymark next to the user's.

waymark_sinks            one row for each (table, query, job that began it): the attempt that writes, and its timeline
waymark_sink_timelines   one row for each timeline that ever wrote: its number, its lineage, its last batch

A transaction that writes locks its row in waymark_sinks until it ends. So two writers run one after the other, and the
older one sees the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from checkpointing.sinks.context import FencedOut, OutputTaken, SinkContext
from checkpointing.sinks.lineage import Lineage, Span, from_json, moves, to_json

Connection = psycopg.Connection[Any]

_TABLES = """
CREATE TABLE IF NOT EXISTS waymark_sinks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target text NOT NULL, query text NOT NULL, origin text NOT NULL,
    job_id text NOT NULL, attempt bigint NOT NULL, timeline bigint,
    UNIQUE (target, query, origin));
CREATE TABLE IF NOT EXISTS waymark_sink_timelines (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sink bigint NOT NULL REFERENCES waymark_sinks, timeline text NOT NULL, job_id text NOT NULL,
    lineage jsonb NOT NULL, batch bigint NOT NULL DEFAULT -1, began timestamptz NOT NULL DEFAULT now(),
    UNIQUE (sink, timeline));
"""
# The output continues under another job's ID if that job was started from a state of the first one.
_SINK = """
SELECT id, job_id, attempt, timeline FROM waymark_sinks AS s
WHERE target = %(target)s AND query = %(query)s AND (origin = %(job)s OR EXISTS (
    SELECT FROM waymark_sink_timelines AS t
    WHERE t.sink = s.id AND (t.job_id = %(job)s OR t.timeline = ANY(%(lineage)s))))
ORDER BY id LIMIT 1 FOR UPDATE
"""


# Every sink of the table: its current writer, and the timelines that wrote it.
_SINKS = """
SELECT id, query, job_id, ARRAY(SELECT timeline FROM waymark_sink_timelines AS t WHERE t.sink = s.id)
FROM waymark_sinks AS s WHERE target = %s ORDER BY id DESC
"""


class SinkTableTaken(OutputTaken):
    """The table has the output of another query, or of a job that this one did not continue from."""


@dataclass(frozen=True)
class NumberedSpan:
    """The batches of timeline `number` from `after`, exclusive, to `to`, inclusive."""

    number: int
    after: int
    to: int


@dataclass(frozen=True)
class NumberedMoves:
    """Moves between timelines. `live` has the batches whose rows belong to the table afterwards."""

    away: tuple[NumberedSpan, ...]
    back: tuple[NumberedSpan, ...]
    live: tuple[NumberedSpan, ...]


@dataclass
class Claim:
    """The claim of this attempt on `sink`. Its timeline has the number `number`, and `batch` is its last batch."""

    sink: int
    number: int
    batch: int


def create_tables(connection: Connection) -> None:
    """Create the tables in the caller's transaction, under a lock: concurrent CREATE … IF NOT EXISTS fails."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('waymark sink'))")
    if connection.execute("SELECT to_regclass('waymark_sink_timelines')").fetchone() == (None,):
        connection.execute(_TABLES)


def claim(
    connection: Connection,
    target: str,
    query: str,
    job: SinkContext,
    rewind: Callable[[NumberedMoves], None],
    *,
    shared: bool,
) -> Claim:
    """Make this attempt the writer, in the caller's transaction. Raise FencedOut or SinkTableTaken if it may not write.

    `shared`: unrelated jobs and queries may write to the table. `rewind` is called when the timeline changes.
    Afterwards the table contains exactly the rows that the attempt's state includes.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"waymark sink {target}",))
    lineage = job.lineage(query)
    found = _find(connection, target, query, job, lineage)
    if found is None and not shared:
        _refuse_unrelated(connection, target, query, job)
    sink, writer, attempt, current = found or _begin(connection, target, query, job)
    _check_admitted(connection, target, sink, writer, attempt, job)
    old = _lineage_of(connection, current)
    number, batch = _timeline(connection, sink, job, lineage)
    if number != current:
        rewind(_numbered(connection, sink, old, lineage))
    connection.execute(
        "UPDATE waymark_sinks SET job_id = %s, attempt = %s, timeline = %s WHERE id = %s",
        (job.job_id, job.attempt, number, sink),
    )
    return Claim(sink, number, batch)


def check(connection: Connection, mine: Claim, job: SinkContext) -> None:
    """Raise FencedOut if the claim was lost. It cannot be lost until the caller's transaction ends."""
    row = connection.execute(
        "SELECT job_id, attempt, timeline FROM waymark_sinks WHERE id = %s FOR UPDATE", (mine.sink,)
    ).fetchone()
    if row != (job.job_id, job.attempt, mine.number):
        whom = "nobody" if row is None else f"attempt {row[1]} of job {row[0]}"
        raise FencedOut(f"attempt {job.attempt} of job {job.job_id} may not write: {whom} has claimed the table since")


def record(connection: Connection, mine: Claim, job: SinkContext, batch: int) -> None:
    """Record that `batch` is in the table, as part of the caller's transaction.

    Raise FencedOut if the claim was lost.
    """
    check(connection, mine, job)
    connection.execute("UPDATE waymark_sink_timelines SET batch = %s WHERE number = %s", (batch, mine.number))


def in_spans(spans: tuple[NumberedSpan, ...]) -> sql.Composable:
    """Return the condition that a row belongs to one of the spans."""
    if not spans:
        return sql.SQL("false")
    each = (
        sql.SQL("(waymark_timeline = {} AND waymark_batch > {} AND waymark_batch <= {})").format(
            sql.Literal(span.number), sql.Literal(span.after), sql.Literal(span.to)
        )
        for span in spans
    )
    return sql.SQL("({})").format(sql.SQL(" OR ").join(each))


def _find(
    connection: Connection, target: str, query: str, job: SinkContext, lineage: Lineage
) -> tuple[int, str, int, int | None] | None:
    names: Mapping[str, Any] = {
        "target": target, "query": query, "job": job.job_id, "lineage": [segment.timeline for segment in lineage]
    }  # fmt: skip
    return connection.execute(_SINK, names).fetchone()


def _begin(connection: Connection, target: str, query: str, job: SinkContext) -> tuple[int, str, int, int | None]:
    row = connection.execute(
        "INSERT INTO waymark_sinks (target, query, origin, job_id, attempt)"
        " VALUES (%s, %s, %s, %s, -1) RETURNING id, job_id, attempt, timeline",
        (target, query, job.job_id, job.job_id),
    ).fetchone()
    if row is None:
        raise RuntimeError(f"the row of the sink {target} was deleted while it was created")
    return row  # type: ignore[no-any-return]


def forget_unrelated(connection: Connection, target: str, job: SinkContext) -> None:
    """Remove the claims of unrelated jobs and queries, because their table was dropped."""
    for sink, _, _ in _unrelated(connection, target, job):
        connection.execute("DELETE FROM waymark_sink_timelines WHERE sink = %s", (sink,))
        connection.execute("DELETE FROM waymark_sinks WHERE id = %s", (sink,))


def _refuse_unrelated(connection: Connection, target: str, query: str, job: SinkContext) -> None:
    """Raise SinkTableTaken, with the same rule and words as a FileSink's directory."""
    for _, other_query, writer in _unrelated(connection, target, job)[:1]:
        choices = "Or drop the table to start over, or use shared=True if both are to write to it."
        if other_query != query:
            raise SinkTableTaken(
                f"{target} holds the output of query {other_query!r}: give query {query!r} another table. {choices}"
            )
        raise SinkTableTaken(
            f"{target} holds the output of job {writer}: start job {job.job_id} from a snapshot of job {writer}, "
            f"or give it another table. {choices}"
        )


def _unrelated(connection: Connection, target: str, job: SinkContext) -> list[tuple[int, str, str]]:
    """Return the ID, query and job of each sink of the table that does not belong to the job.

    A job may write to a table with several queries. It also owns the sink of a job from whose state it was started, if
    it still has the query.
    """

    def is_own(query: str, writer: str, timelines: Sequence[str]) -> bool:
        restored = job.lineages.get(query, ())
        return writer == job.job_id or any(segment.timeline in timelines for segment in restored)

    rows = connection.execute(_SINKS, (target,)).fetchall()
    return [(sink, query, writer) for sink, query, writer, timelines in rows if not is_own(query, writer, timelines)]


def _check_admitted(
    connection: Connection, target: str, sink: int, writer: str, attempt: int, job: SinkContext
) -> None:
    """Raise FencedOut for an older attempt, or for a job that another one has replaced."""
    if writer == job.job_id:
        if job.attempt < attempt:
            raise FencedOut(f"attempt {job.attempt} may not write: attempt {attempt} has claimed the table since")
        return
    known = connection.execute(
        "SELECT FROM waymark_sink_timelines WHERE sink = %s AND job_id = %s LIMIT 1", (sink, job.job_id)
    )
    if known.fetchone() is not None:
        raise FencedOut(
            f"job {job.job_id} may not write: job {writer}, started from its state, has taken over {target}"
        )


def _lineage_of(connection: Connection, number: int | None) -> Lineage:
    row = connection.execute("SELECT lineage::text FROM waymark_sink_timelines WHERE number = %s", (number,)).fetchone()
    return from_json(row[0]) if row is not None else ()


def _timeline(connection: Connection, sink: int, job: SinkContext, lineage: Lineage) -> tuple[int, int]:
    """Return the timeline's number, which is assigned at its first claim, and the last batch that it wrote."""
    row = connection.execute(
        "INSERT INTO waymark_sink_timelines (sink, timeline, job_id, lineage) VALUES (%s, %s, %s, %s)"
        " ON CONFLICT (sink, timeline) DO UPDATE SET lineage = excluded.lineage RETURNING number, batch",
        (sink, job.timeline, job.job_id, to_json(lineage)),
    ).fetchone()
    if row is None:
        raise RuntimeError(f"the row of timeline {job.timeline} was deleted while it was created")
    return row  # type: ignore[no-any-return]


def _numbered(connection: Connection, sink: int, old: Lineage, new: Lineage) -> NumberedMoves:
    """Return the moves by number. A timeline that never wrote here has no number and nothing to move."""
    rows = connection.execute("SELECT timeline, number FROM waymark_sink_timelines WHERE sink = %s", (sink,))
    numbers: dict[str, int] = dict(rows.fetchall())

    def numbered(spans: Iterable[Span]) -> tuple[NumberedSpan, ...]:
        return tuple(NumberedSpan(numbers[s.timeline], s.after, s.to) for s in spans if s.timeline in numbers)

    found = moves(old, new)
    return NumberedMoves(numbered(found.away), numbered(found.back), live=numbered(moves((), new).back))
