"""Rewrite files of archived months: with checkpoints that arrived or changed late, or to merge many small files.

PostgreSQL stores late rows in the partition `_before`, and a trigger records each of them (PartitionTouch). New files
are written and compared first. One transaction then replaces the old files and stores the roll-ups of the late rows'
days, which Spark makes from the new files. So a process that is killed leaves a month unchanged or rewritten, and doing
it twice changes nothing. The rows stay in PostgreSQL, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Sum

from monitoring.history.archive import parquet
from monitoring.history.archive.archiving import write_manifest
from monitoring.history.archive.kinds import KINDS
from monitoring.history.archive.moving import ChangedMeanwhile, Month, Mover, day_range, set_state
from monitoring.history.partitions import partitions_of
from monitoring.history.pipeline.columns import HOUR, ROLLUPS
from monitoring.models import ArchivedFile, ArchivedKind, ArchivedState, PartitionTouch, Rollup, RollupProgress, Run
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

_KIND = KINDS[ArchivedKind.CHECKPOINTS]
BEFORE = f"{_KIND.table.name}_before"
# A month is merged if it has more files than this for each full file that its rows need.
MOST_FILES = 2
_TOUCHES = f"""
SELECT t.id, (t.moment AT TIME ZONE 'UTC')::date, array_agg(DISTINCT j.cluster_id) FILTER (WHERE j.id IS NOT NULL)
FROM monitoring_partitiontouch t
LEFT JOIN {BEFORE} k ON k.triggered_at = t.moment
LEFT JOIN monitoring_run r ON r.id = k.run_id LEFT JOIN monitoring_job j ON j.id = r.job_id
WHERE t.partition = '{BEFORE}' GROUP BY 1, 2
"""  # noqa: S608 (our names)
_LATE_RUNS = f"""
SELECT DISTINCT k.run_id, r.job_id, (k.triggered_at AT TIME ZONE 'UTC')::date FROM {BEFORE} k {_KIND.joins}
WHERE j.cluster_id = %s AND (k.triggered_at AT TIME ZONE 'UTC')::date = ANY(%s)
"""  # noqa: S608 (our names)
_KEY = ["job_id", "seconds", "start"]


@dataclass
class Late:
    """Days of an archived month with late rows."""

    month: Month
    days: set[date] = field(default_factory=set)


def anything_late() -> bool:
    return PartitionTouch.objects.filter(partition=BEFORE).exists()


def take_up(mover: Mover, is_time_left: Any) -> list[Reason]:
    """Add late rows to their files while there is time. Return what was done, and what was not possible."""
    touches = _touches()
    left, done, reasons = set[tuple[int, date]](), 0, list[Reason]()
    for late in _late(touches):
        days = {(late.month.cluster_id, day) for day in late.days}
        if not is_time_left():
            left |= days
            continue
        try:
            done += sum(step == "replace" for step in steps(late, mover))
        except ChangedMeanwhile:
            left |= days
        except parquet.Damaged as why:
            left |= days
            reasons.append(WorkReason.NOT_COUNTED_YET(day=min(late.days), why=why.reason))
    known = [pk for pk, day, clusters in touches if not any((cluster, day) in left for cluster in clusters)]
    PartitionTouch.objects.filter(pk__in=known).delete()
    return [*([WorkReason.ARCHIVED_LATE(count=done)] if done else []), *reasons]


def _touches() -> list[tuple[int, date, list[int]]]:
    """Return the records of late rows: key, day, and the clusters that have rows of that time."""
    with connection.cursor() as cursor:
        cursor.execute(_TOUCHES)
        return [(pk, day, clusters or []) for pk, day, clusters in cursor.fetchall()]


def _late(touches: Sequence[tuple[int, date, list[int]]]) -> list[Late]:
    """Return what is late by month, oldest first. The pipeline processes late rows of days that are not archived."""
    found: dict[Month, Late] = {}
    for cluster, day in sorted({(cluster, day) for _, day, clusters in touches for cluster in clusters}):
        month = Month(ArchivedKind.CHECKPOINTS, cluster, day.replace(day=1))
        if month.files.filter(**_on(day), state=ArchivedState.LIVE).exists():
            found.setdefault(month, Late(month)).days.add(day)
    return sorted(found.values(), key=lambda late: (late.month.month, late.month.cluster_id))


def _on(day: date) -> dict[str, datetime]:
    since, until = day_range(day)
    return {"since__lt": until, "until__gt": since}


def steps(late: Late, mover: Mover) -> Iterator[str]:
    """Add the late rows: yield the name of each step before it is done. Raises Damaged, ChangedMeanwhile, OSError."""
    yield "look"
    runs = _late_runs(late)
    live = late.month.files.filter(state=ArchivedState.LIVE)
    replaced = list(live.filter(runs__overlap=list(runs)).order_by("path"))
    for file in replaced:
        parquet.checked(file, whole=True)
    yield "write"
    files = mover.move(late.month, BEFORE, [day_range(day) for day in sorted(late.days)], replaced)
    yield "count"
    rollups = _rolled_up(late, runs, files, replaced, mover)
    yield "replace"
    _replace(late.month, files, replaced, rollups)
    yield "manifest"
    write_manifest(late.month)


def _late_runs(late: Late) -> dict[int, tuple[int, set[date]]]:
    """Return the job of each run with late rows, and the days of these rows."""
    found: dict[int, tuple[int, set[date]]] = {}
    with connection.cursor() as cursor:
        cursor.execute(_LATE_RUNS, [late.month.cluster_id, sorted(late.days)])
        for run, job, day in cursor.fetchall():
            found.setdefault(run, (job, set()))[1].add(day)
    return found


def _rolled_up(
    late: Late, late_runs: Mapping[int, tuple[int, set[date]]], files: Sequence[ArchivedFile],
    replaced: Sequence[ArchivedFile], mover: Mover,
) -> list[Rollup]:  # fmt: skip
    """Return the roll-ups of the days of jobs with late rows, and of the hours of these days if hours are kept."""
    days = sorted({(job, day) for job, days in late_runs.values() for day in days})
    runs = dict(Run.objects.filter(job__in={job for job, _ in days}).values_list("pk", "job_id"))
    live = late.month.files.filter(state=ArchivedState.LIVE, runs__overlap=list(runs))
    others = list(live.exclude(pk__in=[file.pk for file in replaced]))
    for file in others:
        parquet.checked(file, whole=True)
    with_hours = {job for job, day in days for job in _with_hours(day, [job])}
    rows = mover.rolled_up([*files, *others], runs, days)
    return [Rollup(**row) for row in rows if row["seconds"] != HOUR or row["job_id"] in with_hours]


def _with_hours(day: date, jobs: Sequence[int]) -> set[int]:
    """Return the jobs that still have hourly roll-ups of the day or of an earlier one."""
    midnight, end = day_range(day)
    kept_from = RollupProgress.objects.values_list("hours_from", flat=True).first()
    if kept_from is not None and midnight < kept_from:
        return set()
    hours = Rollup.objects.filter(job__in=jobs, seconds=HOUR, start__lt=end)
    return set(hours.values_list("job_id", flat=True).distinct())


def _replace(
    month: Month, files: Sequence[ArchivedFile], replaced: Sequence[ArchivedFile], rollups: Sequence[Rollup]
) -> None:
    changed = WorkReason.MONTH_CHANGED(month=month.month)
    with transaction.atomic():
        set_state(replaced, ArchivedState.GOING, changed)
        set_state(files, ArchivedState.LIVE, changed)
        rest = [name for name in ROLLUPS.names if name not in _KEY]
        Rollup.objects.bulk_create(
            rollups, batch_size=1000, update_conflicts=True, unique_fields=_KEY, update_fields=rest
        )


# --- many small files ------------------------------------------------------------------------------------------------


def next_small() -> Month | None:
    """Return the oldest complete month with many small files. A file that cannot be read keeps its month as it is."""
    from monitoring.history.pipeline.moving import ROWS_A_FILE

    live = ArchivedFile.objects.filter(state=ArchivedState.LIVE)
    grouped = live.values_list("kind", "cluster_id", "month").annotate(files=Count("pk"), total=Sum("rows"))
    for kind, cluster_id, first, files, total in grouped.filter(files__gt=MOST_FILES).order_by("month", "kind"):
        month = Month(ArchivedKind(kind), cluster_id, first)
        unreadable = month.files.filter(state=ArchivedState.LIVE).exclude(problem="")
        if files > MOST_FILES * -(-total // ROWS_A_FILE) and _is_complete(month) and not unreadable.exists():
            return month
    return None


def _is_complete(month: Month) -> bool:
    """Return whether no partition that will be archived has rows of the month."""
    dated = [each.start for each in partitions_of(KINDS[month.kind].table) if each.start is not None]
    following = (month.month + timedelta(days=31)).replace(day=1)
    return not dated or datetime.combine(following, time(), UTC) <= dated[0]


def merge(mover: Mover, is_time_left: Any) -> Reason | None:
    """Merge the files of months while there is time. Return what was done, or None if nothing was merged."""
    done = 0
    while is_time_left() and (month := next_small()) is not None:
        if not any(step == "manifest" for step in merging(month, mover)):
            break
        done += 1
    return WorkReason.FILES_MERGED(count=done) if done else None


def merging(month: Month, mover: Mover) -> Iterator[str]:
    """Merge step by step: yield the name of each step before it is done. An unreadable file is noted and ends this."""
    yield "read"
    replaced = list(month.files.filter(state=ArchivedState.LIVE).order_by("path"))
    try:
        for file in replaced:
            parquet.checked(file, whole=True)
    except parquet.Damaged:
        return
    yield "write"
    files = mover.move(month, "", (), replaced)
    yield "replace"
    _replace(month, files, replaced, ())
    yield "manifest"
    write_manifest(month)
