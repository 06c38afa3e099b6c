"""Archive a span of the history, from its first file to the drop of its partitions.

The process may be killed at any moment: the next one keeps the files that are written. Only the last step, one
transaction, removes rows from PostgreSQL.

1. *Watch.* From now on a trigger records every change of a row in the partitions.
2. *Move* the rows of each kind, cluster and month without files: Spark writes files, and compares them with a second
   reading. Months that changed since step 1 are written again.
3. Write *manifests* next to the files.
4. *Close*, with the tables locked: check that nothing changed since it was written and that all files are there. Then
   move the few rows that are still needed, drop the partitions, and make the files readable for pages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from django.db import connection, transaction

from monitoring.history.archive import location
from monitoring.history.archive.kinds import KINDS
from monitoring.history.archive.moving import ChangedMeanwhile, Mover, set_state
from monitoring.history.archive.needed import needed
from monitoring.history.archive.spans import Piece, Span, pieces_of
from monitoring.history.catalogue import Month, day_range
from monitoring.history.partitions import LOCK_TIMEOUT, alone, drop_oldest
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, PartitionTouch, Run
from monitoring.reasons.work import WorkReason

_TRIGGER = "archive_watch"
_WATCHED = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = %s AND tgrelid = to_regclass(%s))"


def steps(span: Span, mover: Mover) -> Iterator[str]:
    """Archive the span step by step: yield the name of each step before it is done.

    Raises ChangedMeanwhile: rows changed, so the caller must start again later. Raises OSError.
    """
    yield "watch"
    _watch(span)
    yield "plan"
    pieces = pieces_of(span)
    written = _written(span, pieces)
    for number, piece in enumerate(pieces, 1):
        if piece.month not in written:
            yield f"move {number} of {len(pieces)}"
            _move(piece, mover)
    yield "manifests"
    for piece in pieces:
        write_manifest(piece.month)
    yield "close"
    _close(span, pieces)


def _watch(span: Span) -> None:
    for kind, partition in span.partitions.items():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_WATCHED, [_TRIGGER, partition])
            if not cursor.fetchone()[0]:
                cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
                cursor.execute(
                    f"CREATE TRIGGER {_TRIGGER} AFTER INSERT OR UPDATE OR DELETE ON {partition} FOR EACH ROW"
                    f" EXECUTE FUNCTION monitoring_partition_touched('{KINDS[kind].table.key}')"
                )


def _written(span: Span, pieces: Sequence[Piece]) -> set[Month]:
    """Return the months whose files have all of their rows. Mark other files of the span for deletion."""
    touches = PartitionTouch.objects.filter(partition__in=span.partitions.values())
    touched = {touch.pk: touch.moment.date().replace(day=1) for touch in touches}
    rows, fit = _rows_by_month(span), set[Month]()
    for piece in pieces:
        if rows.get(piece.month) == piece.rows and piece.month.month not in touched.values():
            fit.add(piece.month)
    unfit = [file.pk for file in _files(span) if _month(file) not in fit]
    with transaction.atomic():
        ArchivedFile.objects.filter(pk__in=unfit).update(state=ArchivedState.GOING)
        PartitionTouch.objects.filter(pk__in=touched).delete()
    return fit


def _rows_by_month(span: Span) -> Counter[Month]:
    found = Counter[Month]()
    for file in _files(span):
        found[_month(file)] += file.rows
    return found


def _month(file: ArchivedFile) -> Month:
    return Month(ArchivedKind(file.kind), file.cluster_id, file.month)


def _files(span: Span) -> list[ArchivedFile]:
    written = ArchivedFile.objects.filter(state=ArchivedState.WRITTEN, kind__in=list(span.partitions))
    return list(written.filter(since__gte=span.start, until__lte=span.end))


def _move(piece: Piece, mover: Mover) -> None:
    files = mover.move(piece.month, piece.partition, [day_range(day) for day in piece.days])
    changed = WorkReason.MONTH_CHANGED(month=piece.month.month)
    if sum(file.rows for file in files) != piece.rows:
        raise ChangedMeanwhile(changed)
    set_state(files, ArchivedState.WRITTEN, changed)


def write_manifest(month: Month) -> None:
    """Write the manifest of the month's directory, if it has files."""
    directory = location.directory_of(*month)
    if location.files().names(location.place(directory)):
        rows = month.files.filter(path__startswith=f"{directory}/").exclude(state=ArchivedState.GOING).order_by("path")
        location.files().write_durably(location.place(f"{directory}/{location.MANIFEST}"), _manifest(list(rows)))


def _manifest(rows: Sequence[ArchivedFile]) -> bytes:
    """Return the manifest as JSON. It names the runs to which rows refer by key: else only the database knows them."""
    runs = Run.objects.filter(pk__in={run for row in rows for run in row.runs}).select_related("job__cluster")
    files = [
        {
            "name": row.path.rpartition("/")[2], "rows": row.rows, "size": row.size, "sha256": row.sha256,
            "since": row.since.isoformat(), "until": row.until.isoformat(),
        }
        for row in rows
    ]  # fmt: skip
    known = {
        str(run.pk): {"cluster": run.job.cluster.name, "job": run.job.name, "run": run.number, "id": run.engine_job_id}
        for run in runs
    }
    return json.dumps({"version": 1, "files": files, "runs": known}, indent=1).encode()


def _close(span: Span, pieces: Sequence[Piece]) -> None:
    kept = needed(span)
    tables = [KINDS[kind].table for kind in (*span.partitions, *span.missing)]
    with transaction.atomic(), connection.cursor() as cursor:
        alone(cursor)
        for table in tables:  # lock the tables in the order in which polls write to them
            cursor.execute(f"LOCK TABLE ONLY {table.name} IN ACCESS EXCLUSIVE MODE")
        if PartitionTouch.objects.filter(partition__in=span.partitions.values()).exists():
            raise ChangedMeanwhile(WorkReason.SPAN_CHANGED(span=str(span)))
        if _rows_by_month(span) != {piece.month: piece.rows for piece in pieces}:
            raise ChangedMeanwhile(WorkReason.SPAN_INCOMPLETE(span=str(span)))
        for kind in (*span.partitions, *span.missing):
            column = "checkpoint_id" if kind == ArchivedKind.OPERATORS else "id"
            drop_oldest(KINDS[kind].table, span.partitions.get(kind), span.end, column, kept[kind])
        ArchivedFile.objects.filter(pk__in=[file.pk for file in _files(span)]).update(state=ArchivedState.LIVE)
