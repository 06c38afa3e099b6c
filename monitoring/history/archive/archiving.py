"""Archive a span of the history, from its first file to the drop of its partitions.

The process may be killed at any moment: the next one keeps the files that are written. Only the last step, one
transaction, removes rows from PostgreSQL.

1. *Watch.* From now on a trigger records every change of a row in the partitions.
2. For each slice without a file: *write* it, *compare* it row by row with a second reading, *place* it (durably, by
   renaming) and *note* it as a row. Slices of days that changed since step 1 are written again.
3. Write *manifests* next to the files.
4. *Close*, with the tables locked: check that nothing changed since it was written and that every slice has its file.
   Then move the few rows that are still needed, drop the partitions, and make the files readable for pages.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import date

from django.db import connection, transaction

from monitoring.history.archive import location
from monitoring.history.archive.kinds import KINDS
from monitoring.history.archive.needed import needed
from monitoring.history.archive.spans import Slice, Span, cut
from monitoring.history.archive.writing import ChangedMeanwhile, compare, place, replace_row, rows_of, write
from monitoring.history.partitions import LOCK_TIMEOUT, alone, drop_oldest
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, PartitionTouch, Run
from monitoring.reasons.work import WorkReason

_TRIGGER = "archive_watch"
_WATCHED = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = %s AND tgrelid = to_regclass(%s))"


def steps(span: Span) -> Iterator[str]:
    """Archive the span step by step: yield the name of each step before it is done.

    Raises ChangedMeanwhile: rows changed, so the caller must start again later.
    """
    yield "watch"
    _watch(span)
    yield "plan"
    planned = cut(span)
    written = _written(span, planned)
    for number, piece in enumerate(planned, 1):
        if piece.key not in written:
            for step in _one(piece):
                yield f"{step} {number} of {len(planned)}"
    yield "manifests"
    write_manifests({(each.kind, each.day, each.cluster_id) for each in planned})
    yield "close"
    _close(span, planned)


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


def _written(span: Span, planned: Sequence[Slice]) -> set[tuple[object, ...]]:
    """Return the keys of slices that have their file. Mark files of changed days, or of no slice, for deletion."""
    wanted = {each.key for each in planned}
    touches = PartitionTouch.objects.filter(partition__in=span.partitions.values())
    touched = {touch.pk: touch.moment.date() for touch in touches}
    fit, unfit = set[tuple[object, ...]](), []
    for row in _files(span):
        key = (row.kind, row.cluster_id, row.since, row.until, row.rows)
        if key in wanted and row.since.date() not in touched.values():
            fit.add(key)
        else:
            unfit.append(row.pk)
    with transaction.atomic():
        ArchivedFile.objects.filter(pk__in=unfit).update(state=ArchivedState.GOING)
        PartitionTouch.objects.filter(pk__in=touched).delete()
    return fit


def _files(span: Span) -> list[ArchivedFile]:
    written = ArchivedFile.objects.filter(state=ArchivedState.WRITTEN, kind__in=list(span.partitions))
    return list(written.filter(since__gte=span.start, until__lte=span.end))


def _one(piece: Slice) -> Iterator[str]:
    kind = KINDS[piece.kind]
    with location.workshop() as directory:
        yield "write"
        draft = write(directory / "draft.parquet", kind, rows_of(piece))
        yield "compare"
        if draft.rows != piece.rows:
            rows = {"rows": draft.rows, "expected": piece.rows}
            raise ChangedMeanwhile(WorkReason.DAY_CHANGED(day=piece.day, kind=str(piece.kind), **rows))
        compare(draft, rows_of(piece))
        yield "place"
        row = place(draft, piece)
        yield "note"
        replace_row(row)


def write_manifests(directories: Collection[tuple[ArchivedKind, date, int]]) -> None:
    """Write the manifest of each directory that exists."""
    there = ArchivedFile.objects.exclude(state=ArchivedState.GOING)
    for kind, day, cluster_id in sorted(directories):
        directory = location.directory_of(kind, day, cluster_id)
        if location.files().names(location.place(directory)):
            rows = there.filter(kind=kind, since__date=day, cluster_id=cluster_id).order_by("since")
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


def _close(span: Span, planned: Sequence[Slice]) -> None:
    kept = needed(span)
    tables = [KINDS[kind].table for kind in (*span.partitions, *span.missing)]
    with transaction.atomic(), connection.cursor() as cursor:
        alone(cursor)
        for table in tables:  # locked in the order in which polls write them
            cursor.execute(f"LOCK TABLE ONLY {table.name} IN ACCESS EXCLUSIVE MODE")
        if PartitionTouch.objects.filter(partition__in=span.partitions.values()).exists():
            raise ChangedMeanwhile(WorkReason.SPAN_CHANGED(span=str(span)))
        rows = _files(span)
        if {(r.kind, r.cluster_id, r.since, r.until, r.rows) for r in rows} != {each.key for each in planned}:
            raise ChangedMeanwhile(WorkReason.SPAN_INCOMPLETE(span=str(span)))
        for kind in (*span.partitions, *span.missing):
            column = "checkpoint_id" if kind == ArchivedKind.OPERATORS else "id"
            drop_oldest(KINDS[kind].table, span.partitions.get(kind), span.end, column, kept[kind])
        ArchivedFile.objects.filter(pk__in=[row.pk for row in rows]).update(state=ArchivedState.LIVE)
