"""Checkpoints that come for a day, or change, after it was archived: they are taken into its files and its roll-ups.

They lie in `_before`, and the database notes each (PartitionTouch). The file that their moment belongs to is written
anew with them, verified as any, and takes the old one's place in the transaction that stores the day's roll-ups, made
from the archive as it is then. So whoever is killed leaves the day as it was or as it is to be; taken up twice, it is
the same. In PostgreSQL they stay, as other rows do that are in both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta

import pyarrow as pa
from django.db import connection, transaction
from django.db.models import QuerySet
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
    """Take it up as long as there is time. Returns what was done, and what could not be."""
    done = 0
    held: list[Reason] = []
    for day in _days():
        if monotonic() > until:
            break
        try:
            done += sum(step.startswith("replace") for step in steps(day))
        except ChangedMeanwhile:
            continue  # with the next look
        except parquet.Damaged as why:
            held.append(WorkReason.NOT_COUNTED_YET(day=day, why=why.reason))
    return [*([WorkReason.ARCHIVED_LATE(count=done)] if done else []), *held]


def _days() -> list[date]:
    """With archived checkpoints, the oldest first. What was noted of others is the pipeline's, and forgotten here."""
    touches = PartitionTouch.objects.filter(partition=BEFORE)
    touched = {key: moment.astimezone(UTC).date() for key, moment in touches.values_list("pk", "moment")}
    archived = _live().filter(day__in=set(touched.values())).values_list("day", flat=True)
    days = set(archived)
    touches.filter(pk__in=[key for key, day in touched.items() if day not in days]).delete()
    return sorted(days)


def steps(day: date) -> Iterator[str]:
    """As archiving's: says what it is about to do. Damaged, ChangedMeanwhile."""
    yield "look"
    midnight = datetime.combine(day, time(), UTC)
    touches = PartitionTouch.objects.filter(partition=BEFORE, moment__gte=midnight, moment__lt=midnight + _WHOLE_DAY)
    seen = list(touches.values_list("pk", flat=True))  # what comes from here on is noted once more
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
    return ArchivedFile.objects.filter(kind=ArchivedKind.CHECKPOINTS, state=ArchivedState.LIVE)


def _clusters(midnight: datetime) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(_CLUSTERS, [midnight, midnight + _WHOLE_DAY])
        return sorted(cluster for (cluster,) in cursor.fetchall())


def _late(file: ArchivedFile, files: Sequence[ArchivedFile], midnight: datetime) -> pa.Table:
    """What PostgreSQL has of the time that the file is there for: from its beginning to the next one's, the first one
    from midnight and the last one to midnight. Those that stayed when the day was archived are among them."""
    place = bisect_right([each.since for each in files], file.since)
    since = midnight if place == 1 else file.since
    until = midnight + _WHOLE_DAY if place == len(files) else files[place].since
    piece = Slice(_KIND.name, BEFORE, file.cluster_id, file.day, since, until, 0)
    found = list(rows_of(piece))
    return pa.concat_tables(found) if found else _KIND.schema.empty_table()


def _merged(file: ArchivedFile, late: pa.Table) -> pa.Table | None:
    """The file's rows with those of PostgreSQL, which are newer; None: they are in it as they are. Damaged."""
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
    """Of the jobs that anything came late of, from this file as it is to be and the day's others as they are."""
    jobs = set(Run.objects.filter(pk__in=set(late["run_id"].to_pylist())).values_list("job_id", flat=True))
    runs = list(Run.objects.filter(job__in=jobs).values_list("pk", flat=True))
    others = [_rows(each, runs) for each in files if each.pk != file.pk]
    return counting.rolled_up([merged, *others], file.day, jobs)


def _rows(file: ArchivedFile, runs: Sequence[int]) -> pa.Table:
    """Of these runs. Damaged."""
    return parquet.told(file, lambda: parquet.rows_where(file, "run_id", runs))
