"""Add checkpoints that arrive or change after their day was archived to the day's files and roll-ups.

PostgreSQL stores such rows in the partition `_before`, and a trigger records each of them (PartitionTouch). This module
writes the file of their time again with them and verifies it. One transaction replaces the old file and stores the
day's roll-ups, which are made from the archive. So a process that is killed leaves the day either unchanged or done,
and doing it twice changes nothing. The rows stay in PostgreSQL, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta

import pyarrow as pa
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import TruncDate
from pyarrow import compute as pc

from monitoring.history.archive import counting, location, parquet
from monitoring.history.archive.archiving import write_manifests
from monitoring.history.archive.kinds import KINDS
from monitoring.history.archive.spans import Slice
from monitoring.history.archive.writing import ChangedMeanwhile, compare, in_groups, place_on_trial, rows_of, write
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, PartitionTouch, Rollup, Run
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

_KIND = KINDS[ArchivedKind.CHECKPOINTS]
BEFORE = f"{_KIND.table.name}_before"
_WHOLE_DAY, _MINUTE = timedelta(days=1), timedelta(minutes=1)
_SAME = ("run_id", "checkpoint_id", "triggered_at")
_CLUSTERS = f"""
SELECT DISTINCT j.cluster_id FROM {BEFORE} k {_KIND.joins} WHERE k.triggered_at >= %s AND k.triggered_at < %s
"""  # noqa: S608 (our names)


def anything_late() -> bool:
    return PartitionTouch.objects.filter(partition=BEFORE).exists()


def take_up(monotonic: Callable[[], float], until: float) -> list[Reason]:
    """Add late checkpoints until the time is up. Return what was done, and what was not possible."""
    done = 0
    held: list[Reason] = []
    for day in _days():
        if monotonic() > until:
            break
        try:
            done += sum(step.startswith("replace") for step in steps(day))
        except ChangedMeanwhile:
            continue  # the next call tries it again
        except parquet.Damaged as why:
            held.append(WorkReason.NOT_COUNTED_YET(day=day, why=why.reason))
    return [*([WorkReason.ARCHIVED_LATE(count=done)] if done else []), *held]


def _days() -> list[date]:
    """Return archived days with late rows, oldest first. Delete touches of other days: the pipeline processes these."""
    touches = PartitionTouch.objects.filter(partition=BEFORE)
    touched = {key: moment.astimezone(UTC).date() for key, moment in touches.values_list("pk", "moment")}
    archived = _live().filter(day__in=set(touched.values())).values_list("day", flat=True)
    days = set(archived)
    touches.filter(pk__in=[key for key, day in touched.items() if day not in days]).delete()
    return sorted(days)


def steps(day: date) -> Iterator[str]:
    """Add the day's rows: yield the name of each step before it is done. Raises Damaged, ChangedMeanwhile."""
    yield "look"
    midnight = datetime.combine(day, time(), UTC)
    touches = PartitionTouch.objects.filter(partition=BEFORE, moment__gte=midnight, moment__lt=midnight + _WHOLE_DAY)
    seen = list(touches.values_list("pk", flat=True))  # later changes are recorded as new touches
    for cluster_id in _clusters(midnight):
        files = list(_live().filter(day=day, cluster_id=cluster_id).order_by("since"))
        for file in files:
            yield from _one(file, files, midnight)
    yield "forget"
    PartitionTouch.objects.filter(pk__in=seen).delete()


def _one(file: ArchivedFile, files: Sequence[ArchivedFile], midnight: datetime) -> Iterator[str]:
    yield "read"
    late = _late(file, files, midnight)
    merged = _merged(file, late) if late.num_rows else None
    if merged is None:
        return
    with location.workshop() as workshop:
        yield "write"
        draft = write(workshop / "draft.parquet", _KIND, in_groups(merged))
        yield "compare"
        again = _merged(file, _late(file, files, midnight))
        if again is None:
            raise ChangedMeanwhile(WorkReason.LATE_CHANGED(day=file.day))
        compare(draft, in_groups(again))
        yield "place"
        row = place_on_trial(draft, _slice(file, merged))
    yield "count"
    rollups = _counted(file, files, merged, late)
    yield "replace"
    with transaction.atomic():
        ArchivedFile.objects.filter(pk=file.pk).update(state=ArchivedState.GOING)
        ArchivedFile.objects.filter(pk=row.pk).update(state=ArchivedState.LIVE)
        counting.store(rollups)
    yield "manifest"
    write_manifests([(ArchivedKind.CHECKPOINTS, file.day, file.cluster_id)])


def _live() -> QuerySet[ArchivedFile]:
    live = ArchivedFile.objects.filter(kind=ArchivedKind.CHECKPOINTS, state=ArchivedState.LIVE)
    return live.annotate(day=TruncDate("since"))


def _clusters(midnight: datetime) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(_CLUSTERS, [midnight, midnight + _WHOLE_DAY])
        return sorted(cluster for (cluster,) in cursor.fetchall())


def _late(file: ArchivedFile, files: Sequence[ArchivedFile], midnight: datetime) -> pa.Table:
    """Return PostgreSQL's rows of the file's time range, including rows that were kept when the day was archived.

    The range is from the start of the file to the start of the next one. The first file's range starts at midnight, and
    the last file's range ends at midnight.
    """
    place = bisect_right([each.since for each in files], file.since)
    since = midnight if place == 1 else file.since
    until = midnight + _WHOLE_DAY if place == len(files) else files[place].since
    piece = Slice(_KIND.name, BEFORE, file.cluster_id, file.day, since, until, 0)
    found = list(rows_of(piece))
    return pa.concat_tables(found) if found else _KIND.schema.empty_table()


def _merged(file: ArchivedFile, late: pa.Table) -> pa.Table | None:
    """Return the file's rows with PostgreSQL's newer ones, or None if the file already has these. Raises Damaged."""
    there = parquet.whole(file, _KIND)
    others = there.join(late.select(list(_SAME)), list(_SAME), join_type="left anti", use_threads=False)
    merged = pa.concat_tables([others.select(_KIND.schema.names).cast(_KIND.schema), late])
    merged = merged.sort_by([(column, "ascending") for column in _KIND.order]).combine_chunks()
    return None if merged.equals(there.combine_chunks()) else merged


def _slice(file: ArchivedFile, merged: pa.Table) -> Slice:
    first, last = pc.min_max(merged["triggered_at"]).as_py().values()
    since = min(file.since, first.replace(second=0, microsecond=0))
    until = max(file.until, last.replace(second=0, microsecond=0) + _MINUTE)
    return Slice(_KIND.name, "", file.cluster_id, file.day, since, until, merged.num_rows)


def _counted(file: ArchivedFile, files: Sequence[ArchivedFile], merged: pa.Table, late: pa.Table) -> list[Rollup]:
    """Return the day's roll-ups of jobs with late rows, from this file's new content and the day's other files."""
    jobs = set(Run.objects.filter(pk__in=set(late["run_id"].to_pylist())).values_list("job_id", flat=True))
    runs = list(Run.objects.filter(job__in=jobs).values_list("pk", flat=True))
    others = [_rows(each, runs) for each in files if each.pk != file.pk]
    return counting.rolled_up([merged, *others], file.day, jobs)


def _rows(file: ArchivedFile, runs: Sequence[int]) -> pa.Table:
    """Return the file's rows of these runs. Raises Damaged."""
    found = parquet.whole(file, _KIND)
    return found.filter(pc.is_in(found["run_id"], pa.array(runs, pa.int64())))
