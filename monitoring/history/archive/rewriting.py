"""Rewrite files of archived months: with checkpoints that arrived or changed late, or to merge many small files.

PostgreSQL stores late rows in the partition `_before`, and a trigger records each of them (PartitionTouch). New files
are written and compared first. One transaction then replaces the old files and stores the roll-ups of the late rows'
days, which Spark makes from the new files. So a process that is killed leaves a month unchanged or rewritten, and doing
it twice changes nothing. The rows stay in PostgreSQL, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from django.db import connection, transaction

from monitoring.history.archive import due, parquet, reading
from monitoring.history.archive.archiving import write_manifest
from monitoring.history.archive.kinds import KINDS
from monitoring.history.archive.moving import ChangedMeanwhile, Mover, set_state
from monitoring.history.catalogue import WHOLE_DAY, Month, day_range
from monitoring.history.pipeline.columns import DAY, HOUR, ROLLUPS, VERSION
from monitoring.models import (
    ArchivedFile,
    ArchivedKind,
    ArchivedState,
    OperatorRollup,
    PartitionTouch,
    Rollup,
    RollupProgress,
    Run,
)
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason

_KIND = KINDS[ArchivedKind.CHECKPOINTS]
_CLUSTERS = f"""
SELECT DISTINCT j.cluster_id, (k.triggered_at AT TIME ZONE 'UTC')::date FROM {due.BEFORE} k {_KIND.joins}
WHERE (k.triggered_at AT TIME ZONE 'UTC')::date = ANY(%s)
"""  # noqa: S608 (our names)
_ROWS = f"""
SELECT k.run_id, k.checkpoint_id, k.triggered_at, k.changed_in, r.job_id FROM {due.BEFORE} k {_KIND.joins}
WHERE j.cluster_id = %s AND (k.triggered_at AT TIME ZONE 'UTC')::date = ANY(%s)
"""  # noqa: S608 (our names)
_KEY = ["job_id", "seconds", "start"]
_OPERATORS_BEFORE = f"{KINDS[ArchivedKind.OPERATORS].table.name}_before"
# The roll-ups of operators by job and day.
OfOperators = dict[tuple[int, date], list[OperatorRollup]]


@dataclass
class Late:
    """Days of an archived month with late rows."""

    month: Month
    days: set[date] = field(default_factory=set)


def take_up(mover: Mover, is_time_left: Callable[[], bool]) -> list[Reason]:
    """Add late rows to their files while there is time. Return what was done, and what was not possible."""
    touches = dict(PartitionTouch.objects.filter(partition=due.BEFORE).values_list("pk", "moment"))
    days = {pk: moment.astimezone(UTC).date() for pk, moment in touches.items()}
    left, done, reasons = set[date](), 0, list[Reason]()
    for late in late_months(set(days.values())):
        if not is_time_left():
            left |= late.days
            continue
        try:
            done += sum(step == "replace" for step in steps(late, mover))
        except ChangedMeanwhile:
            left |= late.days
        except parquet.Damaged as why:
            left |= late.days
            reasons.append(WorkReason.NOT_COUNTED_YET(day=min(late.days), why=why.reason))
    PartitionTouch.objects.filter(pk__in=[pk for pk, day in days.items() if day not in left]).delete()
    return [*([WorkReason.ARCHIVED_LATE(count=done)] if done else []), *reasons]


def late_months(days: Collection[date]) -> list[Late]:
    """Return the archived months of these days, oldest first. The pipeline processes late rows of other months.

    A day without files may get late rows, too, because merged files cover such days. A day whose files were removed is
    left out.
    """
    found: dict[Month, Late] = {}
    with connection.cursor() as cursor:
        cursor.execute(_CLUSTERS, [list(days)])
        for cluster, day in cursor.fetchall():
            month = Month(ArchivedKind.CHECKPOINTS, cluster, day.replace(day=1))
            has_files = month.files.filter(state=ArchivedState.LIVE).exists()
            if has_files and not month.has_removed(day):
                found.setdefault(month, Late(month)).days.add(day)
    return sorted(found.values(), key=lambda late: (late.month.month, late.month.cluster_id))


def steps(late: Late, mover: Mover) -> Iterator[str]:
    """Add the late rows: yield the name of each step before it is done. Raises Damaged, ChangedMeanwhile, OSError."""
    yield "look"
    rows = _rows(late)
    live = late.month.files.filter(state=ArchivedState.LIVE)
    replaced = list(live.filter(runs__overlap=list({run for run, *_ in rows})).order_by("path"))
    days = _changed(rows, replaced)
    if not days:
        return
    yield "write"
    files = mover.move(late.month, due.BEFORE, [day_range(day) for day in sorted(late.days)], replaced)
    yield "count"
    rollups, of_operators = _rolled_up(late, days, files, replaced, mover)
    yield "replace"
    _replace(late.month, files, replaced, rollups, of_operators)
    yield "manifest"
    write_manifest(late.month)


def _rows(late: Late) -> dict[tuple[int, int, datetime], tuple[int, int]]:
    """Return PostgreSQL's rows of these days, also those that stayed when the days were archived.

    (run, checkpoint ID, trigger time) -> (transaction that changed the row, job).
    """
    with connection.cursor() as cursor:
        cursor.execute(_ROWS, [late.month.cluster_id, sorted(late.days)])
        return {(run, number, at): (changed, job) for run, number, at, changed, job in cursor.fetchall()}


def _changed(
    rows: Mapping[tuple[int, int, datetime], tuple[int, int]], files: Sequence[ArchivedFile]
) -> list[tuple[int, date]]:
    """Return the jobs and days with rows that the files do not have, or have as they were before. Raises Damaged."""
    archived: dict[tuple[int, int, datetime], int] = {}
    runs = {run for run, *_ in rows}
    for file in files:
        path = parquet.checked(file, whole=True)
        found = reading.rows_of(path, _KIND, reading.one_of("run_id", runs), [*_KIND.same, "changed_in"])
        archived |= {tuple(same): changed for *same, changed in zip(*found.to_pydict().values(), strict=True)}
    return sorted({(job, key[2].date()) for key, (changed, job) in rows.items() if archived.get(key) != changed})


def _rolled_up(
    late: Late, days: Sequence[tuple[int, date]], files: Sequence[ArchivedFile], replaced: Sequence[ArchivedFile],
    mover: Mover,
) -> tuple[list[Rollup], OfOperators]:  # fmt: skip
    """Return the roll-ups of these jobs and days, and of the hours of these days if hours are kept."""
    runs = dict(Run.objects.filter(job__in={job for job, _ in days}).values_list("pk", "job_id"))
    live = late.month.files.filter(state=ArchivedState.LIVE, runs__overlap=list(runs))
    checkpoints = [*files, *live.exclude(pk__in=[file.pk for file in replaced])]
    for file in checkpoints[len(files) :]:
        parquet.checked(file, whole=True)
    with_hours = {job for job, day in days for job in _with_hours(day, [job])}
    rows = mover.rolled_up(checkpoints, runs, days)
    of_jobs = [Rollup(**row) for row in rows if row["seconds"] != HOUR or row["job_id"] in with_hours]
    return of_jobs, _of_operators(late.month, checkpoints, runs, days, with_hours, mover)


def _of_operators(
    month: Month, checkpoints: Sequence[ArchivedFile], runs: Mapping[int, int], days: Sequence[tuple[int, date]],
    with_hours: Collection[int], mover: Mover,
) -> OfOperators:  # fmt: skip
    """Return the roll-ups of operators of these jobs and days. A day whose files of operators were removed is left out.

    Raises Damaged.
    """
    operators = month._replace(kind=ArchivedKind.OPERATORS)
    found: OfOperators = {(job, day): [] for job, day in days if not operators.has_removed(day)}
    if not found:
        return found
    files = operators.live_on([day for _, day in found])
    for file in files:
        parquet.checked(file, whole=True)
    for row in mover.operators_rolled_up(operators, _OPERATORS_BEFORE, files, checkpoints, runs, list(found)):
        if row["seconds"] != HOUR or row["job_id"] in with_hours:
            found[row["job_id"], row["start"].date()].append(OperatorRollup(**row))
    return found


def _with_hours(day: date, jobs: Sequence[int]) -> set[int]:
    """Return the jobs that still have hourly roll-ups of the day or of an earlier one."""
    midnight, end = day_range(day)
    kept_from = RollupProgress.objects.values_list("hours_from", flat=True).first()
    if kept_from is not None and midnight < kept_from:
        return set()
    hours = Rollup.objects.filter(job__in=jobs, seconds=HOUR, start__lt=end)
    return set(hours.values_list("job_id", flat=True).distinct())


def _replace(
    month: Month, files: Sequence[ArchivedFile], replaced: Sequence[ArchivedFile], rollups: Sequence[Rollup] = (),
    of_operators: OfOperators | None = None,
) -> None:  # fmt: skip
    changed = WorkReason.MONTH_CHANGED(month=month.month)
    with transaction.atomic():
        set_state(replaced, ArchivedState.GOING, changed)
        set_state(files, ArchivedState.LIVE, changed)
        rest = [name for name in ROLLUPS.names if name not in _KEY]
        Rollup.objects.bulk_create(
            rollups, batch_size=1000, update_conflicts=True, unique_fields=_KEY, update_fields=rest
        )
        _store(of_operators or {})


def _store(of_operators: OfOperators) -> None:
    """Replace the roll-ups of operators of these jobs and days, in the caller's transaction."""
    for (job, day), rollups in of_operators.items():
        start, end = day_range(day)
        OperatorRollup.objects.filter(job=job, seconds__in=(HOUR, DAY), start__gte=start, start__lt=end).delete()
        OperatorRollup.objects.bulk_create(rollups, batch_size=1000)


# --- many small files ------------------------------------------------------------------------------------------------


def merge(mover: Mover, is_time_left: Callable[[], bool]) -> Reason | None:
    """Merge the files of months while there is time. Return what was done, or None if nothing was merged."""
    done = 0
    while is_time_left() and (month := due.next_small()) is not None:
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
    _replace(month, files, replaced)
    yield "manifest"
    write_manifest(month)


# --- roll-ups of operators of days that Waymark 0.2 archived ---------------------------------------------------------


def months_without_operators() -> Iterator[tuple[Month, list[tuple[int, date]]]]:
    """Yield the archived months, oldest first, with their jobs and days without current roll-ups of operators."""
    live = ArchivedFile.objects.filter(kind=ArchivedKind.OPERATORS, state=ArchivedState.LIVE)
    for first, cluster in live.values_list("month", "cluster_id").distinct().order_by("month", "cluster_id"):
        month = Month(ArchivedKind.CHECKPOINTS, cluster, first)
        days: set[tuple[int, date]] = set()
        for since, until in live.filter(month=first, cluster_id=cluster).values_list("since", "until"):
            of_days = {"job__cluster": cluster, "seconds": DAY, "start__gt": since - WHOLE_DAY, "start__lt": until}
            counted = Rollup.objects.filter(**of_days, completed__gt=0).values_list("job_id", "start")
            known = OperatorRollup.objects.filter(**of_days, version=VERSION).values_list("job_id", "start")
            days |= {(job, start.date()) for job, start in set(counted) - set(known)}
        if days:
            yield month, sorted(days)


def add_operators(month: Month, days: Sequence[tuple[int, date]], mover: Mover) -> int:
    """Store the roll-ups of operators of these jobs and days, and return their number.

    Raises:
        Damaged, OSError: a file or the storage cannot be used.
    """
    jobs = {job for job, _ in days}
    runs = dict(Run.objects.filter(job__in=jobs).values_list("pk", "job_id"))
    checkpoints = month.live_on([day for _, day in days])
    for file in checkpoints:
        parquet.checked(file, whole=True)
    hours = Rollup.objects.filter(job__in=jobs, seconds=HOUR, start__gte=day_range(min(day for _, day in days))[0])
    with_hours = set(hours.filter(start__lt=day_range(max(day for _, day in days))[1]).values_list("job_id", flat=True))
    found = _of_operators(month, checkpoints, runs, days, with_hours, mover)
    with transaction.atomic():
        _store(found)
    return sum(map(len, found.values()))
