"""Select the time range that is archived next, check what blocks it, and divide it into moves.

A span is the oldest partition of checkpoints and operators, or of counter samples, when all of it is older than
WAYMARK_HISTORY_KEPT. Rows in the partition `_before` stay in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from django.conf import settings
from django.db import connection

from monitoring.history.archive.kinds import KINDS
from monitoring.history.catalogue import Month
from monitoring.history.partitions import Partition, partitions_of
from monitoring.history.pipeline.columns import DAY as DAY_S
from monitoring.models import ArchivedKind
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

# Tables that are archived together. The partitions of the first one determine the time range.
TOGETHER = ((ArchivedKind.CHECKPOINTS, ArchivedKind.OPERATORS), (ArchivedKind.SAMPLES,))


@dataclass(frozen=True)
class Span:
    """A time range to archive. `partitions`: the partition of each kind, without kinds whose partition is missing."""

    start: datetime
    end: datetime
    partitions: dict[ArchivedKind, str]
    missing: tuple[ArchivedKind, ...] = ()

    def __str__(self) -> str:
        last = (self.end - timedelta(seconds=1)).date()
        days = f"{self.start:%-d %B %Y}" if last == self.start.date() else f"{self.start:%-d %B} to {last:%-d %B %Y}"
        return f"{' and '.join(str(ArchivedKind(kind).value) for kind in self.partitions)} of {days}"


@dataclass(frozen=True)
class Piece:
    """The rows of one move: those of a partition that are of a kind, cluster and month, and the days that have any."""

    month: Month
    partition: str
    days: tuple[date, ...]
    rows: int


def due(now: datetime) -> list[Span]:
    """Return the oldest span of each group of tables, if it is old enough."""
    found = (_oldest(kinds) for kinds in TOGETHER)
    return [span for span in found if span is not None and span.end <= now - settings.HISTORY_KEPT]


def waiting(now: datetime) -> int:
    """Return how many partitions are old enough to be archived."""
    return sum(
        each.start is not None and each.end is not None and each.end <= now - settings.HISTORY_KEPT
        for first, *_ in TOGETHER
        for each in partitions_of(KINDS[first].table)
    )


def _oldest(kinds: Sequence[ArchivedKind]) -> Span | None:
    dated = [each for each in partitions_of(KINDS[kinds[0]].table) if each.start is not None and each.end is not None]
    if not dated:
        return None
    oldest = dated[0]
    assert oldest.start is not None and oldest.end is not None  # noqa: PT018, S101 (for mypy)
    found = {kind: _same(oldest, partitions_of(KINDS[kind].table)) for kind in kinds}
    return Span(
        oldest.start,
        oldest.end,
        {kind: each.name for kind, each in found.items() if each is not None},
        tuple(kind for kind, each in found.items() if each is None),
    )


def _same(wanted: Partition, there: Sequence[Partition]) -> Partition | None:
    return next((each for each in there if (each.start, each.end) == (wanted.start, wanted.end)), None)


# --- what blocks a span ----------------------------------------------------------------------------------------------

_UNFINISHED = """
SELECT count(*), min(j.name) FROM {partition} k
JOIN monitoring_run r ON r.id = k.run_id JOIN monitoring_job j ON j.id = r.job_id
JOIN monitoring_cluster cluster ON cluster.id = j.cluster_id
WHERE NOT k.final AND NOT r.final_read_done AND cluster.archived_at IS NULL
"""
_PROGRESS = """
SELECT done, done <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM monitoring_rollupprogress
"""
_NOT_PASSED = """
SELECT EXISTS (SELECT FROM {partition} WHERE changed_in >= %(done)s) OR EXISTS (
    SELECT FROM monitoring_checkpointdeletion
    WHERE deleted_in >= %(done)s AND triggered_at >= %(start)s AND triggered_at < %(end)s)
"""
# Counts the days of jobs whose roll-ups have another number of checkpoints than the partition.
_DIFFERENT = f"""
SELECT count(*) FROM (
    SELECT r.job_id, floor(date_part('epoch', k.triggered_at) / {DAY_S})::bigint AS day, count(*) AS rows
    FROM {{partition}} k JOIN monitoring_run r ON r.id = k.run_id GROUP BY 1, 2
) archived
LEFT JOIN (
    SELECT job_id, floor(date_part('epoch', start) / {DAY_S})::bigint AS day, completed + failed + pending AS rows
    FROM monitoring_rollup WHERE seconds = {DAY_S} AND start >= %(start)s AND start < %(end)s
) rolled USING (job_id, day)
WHERE rolled.rows IS DISTINCT FROM archived.rows
"""  # noqa: S608 (constants only)


def holds(span: Span) -> Reason | None:
    """Return why the span cannot be archived yet, or None."""
    partition = span.partitions.get(ArchivedKind.CHECKPOINTS)
    if partition is None:
        return None
    with connection.cursor() as cursor:
        cursor.execute(_UNFINISHED.format(partition=partition))
        unfinished, job = cursor.fetchone()
        if unfinished:
            return WorkReason.CHECKPOINTS_MAY_CHANGE(count=unfinished, job=job)
        cursor.execute(_PROGRESS)
        progress = cursor.fetchone()
        if progress is None:
            return WorkReason.ROLLUPS_NEVER_MADE()
        if not progress[1]:
            return WorkReason.ROLLUPS_OF_ANOTHER_SERVER()
        known = {"done": progress[0], "start": span.start, "end": span.end}
        cursor.execute(_NOT_PASSED.format(partition=partition), known)
        if cursor.fetchone()[0]:
            return WorkReason.ROLLUPS_BEHIND()
        cursor.execute(_DIFFERENT.format(partition=partition), known)
        if different := cursor.fetchone()[0]:
            return WorkReason.ROLLUPS_DIFFER(count=different)
    return None


# --- dividing a span into moves --------------------------------------------------------------------------------------

_DAYS = """
SELECT j.cluster_id, (k.{key} AT TIME ZONE 'UTC')::date, count(*) FROM {partition} k {joins} GROUP BY 1, 2 ORDER BY 1, 2
"""


def pieces_of(span: Span) -> list[Piece]:
    """Divide the span by kind, cluster and month."""
    found: dict[Month, Piece] = {}
    for kind, partition in span.partitions.items():
        with connection.cursor() as cursor:
            joins = KINDS[kind].joins
            cursor.execute(_DAYS.format(partition=partition, key=KINDS[kind].table.key, joins=joins))
            for cluster_id, day, rows in cursor.fetchall():
                month = Month(kind, cluster_id, day.replace(day=1))
                piece = found.get(month) or Piece(month, partition, (), 0)
                found[month] = replace(piece, days=(*piece.days, day), rows=piece.rows + rows)
    return list(found.values())
