"""Select and read the roll-ups and checkpoints that together cover a time range (a stretch) of a job.

Numbers are always exact, because these hours are computed from checkpoints:

- hours with changes since the pipeline's last batch, and partial hours at both ends
- hours that the requested run shares with other runs
- single hours of a day whose hourly roll-ups are deleted; `whole_days` avoids these for archived days

Archiving makes the roll-ups of archived days. Checkpoints of such days are read from the archive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pyarrow as pa
from django.db import connection
from django.db.models import Q, QuerySet

from monitoring.history.catalogue import WHOLE_DAY, archived_days, days_between, floor
from monitoring.history.pipeline.columns import COUNTS, DAY, HOUR
from monitoring.history.rolling import rolled
from monitoring.history.rows import NotAllRead, of_pieces
from monitoring.models import Job, Rollup, RollupProgress, Run

# If a job has more changes than this that the pipeline has not processed yet, pages do not wait for them.
MOST_BEHIND = 100_000
# The engine's clock and Waymark's may differ by this much at the end of one run and the start of the next.
SLACK = timedelta(minutes=5)
WHOLE_HOUR = timedelta(hours=1)

_DONE = """
SELECT done, hours_from FROM monitoring_rollupprogress
WHERE done <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""
# With an array instead of a join, PostgreSQL finds the runs in the index of changes; other jobs cost next to nothing.
_ITS_RUNS = "ARRAY(SELECT id FROM monitoring_run WHERE job_id = %(job)s)"
_BEHIND = f"""
SELECT count(*) FROM (
    SELECT FROM monitoring_checkpoint WHERE changed_in >= %(done)s AND run_id = ANY({_ITS_RUNS}) LIMIT %(most)s + 1
) c
"""  # noqa: S608 (constants only)
_CHANGED = f"""
SELECT DISTINCT floor(date_part('epoch', triggered_at) / 3600)::bigint * 3600 FROM (
    SELECT triggered_at FROM monitoring_checkpoint
    WHERE changed_in >= %(done)s AND run_id = ANY({_ITS_RUNS}) AND triggered_at >= %(start)s AND triggered_at < %(end)s
    UNION ALL
    SELECT triggered_at FROM monitoring_checkpointdeletion
    WHERE job_id = %(job)s AND deleted_in >= %(done)s AND triggered_at >= %(start)s AND triggered_at < %(end)s
) changed
"""  # noqa: S608 (constants only)
_JOBS_CHANGED = """
SELECT DISTINCT r.job_id FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id
WHERE c.changed_in >= %(done)s AND c.triggered_at >= %(start)s AND c.triggered_at < %(end)s
  AND r.job_id = ANY(%(jobs)s)
UNION SELECT job_id FROM monitoring_checkpointdeletion
WHERE deleted_in >= %(done)s AND triggered_at >= %(start)s AND triggered_at < %(end)s
"""
_STORED = """
SELECT p.place, {columns} FROM unnest(%(places)s::int[], %(seconds)s::int[], %(starts)s::timestamptz[],
    %(ends)s::timestamptz[]) AS p (place, seconds, start, until)
JOIN monitoring_rollup u ON u.job_id = %(job)s AND u.seconds = p.seconds AND u.start >= p.start AND u.start < p.until
"""
_NONE_ARE_MADE = "no roll-ups are made"

Between = tuple[datetime, datetime]
Row = dict[str, Any]


class NotRolledUp(LookupError):
    """Raised if roll-ups are not available; the message has the reason.

    There is no pipeline, it is too far behind for a page, or the archive cannot be read.
    """


@dataclass(frozen=True)
class Stretch:
    """A time range from `start` to before `end`. `run`: the key of the only run to read; None: all runs of the job."""

    start: datetime
    end: datetime
    run: int | None = None


@dataclass
class Pieces:
    """The pieces of a stretch; consecutive ones of one kind are merged. `made`: pieces to compute from checkpoints."""

    days: list[Between] = field(default_factory=list)
    hours: list[Between] = field(default_factory=list)
    made: list[Between] = field(default_factory=list)

    def add(self, kind: Literal["days", "hours", "made"], start: datetime, end: datetime) -> None:
        pieces: list[Between] = getattr(self, kind)
        if pieces and pieces[-1][1] == start:
            pieces[-1] = (pieces[-1][0], end)
        elif start < end:
            pieces.append((start, end))


def cut(
    stretch: Stretch,
    changed: Collection[datetime],
    others: Sequence[Between] = (),
    longest: int = DAY,
    forgotten: Collection[datetime] = (),
) -> Pieces:
    """Divide the stretch into pieces.

    `changed`: hours with outdated roll-ups; `others`: the times of other runs; `longest`: the longest roll-up, in
    seconds, that the caller can use; `forgotten`: days whose hourly roll-ups are deleted.
    """
    first, last = floor(stretch.start + WHOLE_HOUR - timedelta(microseconds=1), HOUR), floor(stretch.end, HOUR)
    pieces = Pieces()
    if first >= last:
        pieces.add("made", stretch.start, stretch.end)
        return pieces
    out = set(changed)
    broken = {floor(hour, DAY) for hour in out}
    pieces.add("made", stretch.start, first)
    at = first
    while at < last:
        day = at + WHOLE_DAY
        if longest >= DAY and floor(at, DAY) == at and day <= last and at not in broken and not _in(others, at, day):
            pieces.add("days", at, day)
            at = day
            continue
        mixed = at in out or floor(at, DAY) in forgotten or _in(others, at, at + WHOLE_HOUR)
        pieces.add("made" if mixed else "hours", at, at + WHOLE_HOUR)
        at += WHOLE_HOUR
    pieces.add("made", last, stretch.end)
    return pieces


def _in(others: Sequence[Between], start: datetime, end: datetime) -> bool:
    return any(began < end and start < ended for began, ended in others)


def read(
    job: Job, stretches: Sequence[Stretch], figures: Sequence[str], *, longest: int = DAY, most: int | None = None
) -> list[list[Row]]:
    """Return, for each stretch, the stored and computed roll-ups that together cover it.

    With `most`, NotRolledUp is raised if more checkpoints than that would have to be read one by one.
    """
    done, kept_from = _done()
    if most is not None:
        _within_reach(job, done)
    start, end = min(each.start for each in stretches), max(each.end for each in stretches)
    archived = archived_days(job, start, end)
    changed = [] if done is None else _changed_hours(job, done, start, end)
    changed = [hour for hour in changed if floor(hour, DAY) not in archived]
    forgotten = _days_without_hours(job, archived, start, end, kept_from)
    others = _times_of_runs(job) if any(each.run for each in stretches) else {}
    cuts = [_cut(each, changed, others, forgotten, longest, reaches=done is not None) for each in stretches]
    rows: list[list[Row]] = [[] for _ in stretches]
    for place, row in (*_stored(job, cuts, figures), *_made(job, stretches, cuts, most, archived)):
        rows[place].append(row)
    return rows


def read_days(jobs: Collection[int], since: datetime, until: datetime, figure: str) -> dict[int, list[Row]]:
    """Return the roll-ups of UTC days of many jobs, by job.

    Jobs with changes in these days since the pipeline's last batch are left out. Raises NotRolledUp if there are no
    current roll-ups at all.
    """
    found, _ = _unchanged(jobs, since, until)
    days = Rollup.objects.filter(job__in=list(found), seconds=DAY, start__gte=since, start__lt=until)
    return _by_job(found, days, figure)


def read_hours(jobs: Collection[int], days: Collection[datetime], figure: str) -> dict[int, list[Row]]:
    """Return the same as `read_days` for the hours of these days (given as midnights, UTC)."""
    found, hours_from = _unchanged(jobs, min(days), max(days) + WHOLE_DAY)
    if hours_from is not None and min(days) < hours_from:
        raise NotRolledUp(f"hourly roll-ups before {hours_from:%Y-%m-%d} were deleted")
    on_days = Q()
    for day in days:
        on_days |= Q(start__gte=day, start__lt=day + WHOLE_DAY)
    return _by_job(found, Rollup.objects.filter(on_days, job__in=list(found), seconds=HOUR), figure)


def _unchanged(jobs: Collection[int], since: datetime, until: datetime) -> tuple[dict[int, list[Row]], datetime | None]:
    """Return the jobs without changes in that time since the pipeline's last batch, and `hours_from`."""
    done, kept_from = _done()
    if done is None:
        raise NotRolledUp(_NONE_ARE_MADE)
    with connection.cursor() as cursor:
        cursor.execute(_JOBS_CHANGED, {"jobs": list(jobs), "start": since, "end": until, "done": done})
        changed = {job for (job,) in cursor.fetchall()}
    return {job: [] for job in jobs if job not in changed}, kept_from


def _by_job(found: dict[int, list[Row]], rollups: QuerySet[Rollup], figure: str) -> dict[int, list[Row]]:
    names = ("job_id", "start", "version", *COUNTS, *(f"{figure}_{what}" for what in _OF_A_FIGURE))
    for row in rollups.values(*names):
        found[row["job_id"]].append(row)
    return found


def _cut(
    each: Stretch,
    changed: Sequence[datetime],
    times_of_runs: dict[int, Between],
    forgotten: Collection[datetime],
    longest: int,
    *,
    reaches: bool,
) -> Pieces:
    if not reaches:
        return Pieces(made=[(each.start, each.end)])
    others = [times for run, times in times_of_runs.items() if run != each.run] if each.run else []
    return cut(each, changed, [times for times in others if _in([times], each.start, each.end)], longest, forgotten)


def _done() -> tuple[int | None, datetime | None]:
    """Return the transaction up to which roll-ups are made, and `hours_from`.

    The transaction is None if there are no roll-ups, or if it is a number of another server.
    """
    with connection.cursor() as cursor:
        cursor.execute(_DONE)
        return cursor.fetchone() or (None, None)


def _within_reach(job: Job, done: int | None) -> None:
    """Raise NotRolledUp if the job has too many unprocessed changes for a page. Changes of other jobs do not matter."""
    if done is None:
        raise NotRolledUp(_NONE_ARE_MADE)
    with connection.cursor() as cursor:
        cursor.execute(_BEHIND, {"job": job.pk, "done": done, "most": MOST_BEHIND})
        behind = (cursor.fetchone() or (0,))[0] > MOST_BEHIND
    if behind:
        at = RollupProgress.objects.values_list("at", flat=True).first()
        raise NotRolledUp(f"roll-ups are behind: they were last computed at {at:%Y-%m-%d %H:%M} UTC")


def _changed_hours(job: Job, done: int, start: datetime, end: datetime) -> list[datetime]:
    with connection.cursor() as cursor:
        cursor.execute(_CHANGED, {"job": job.pk, "done": done, "start": floor(start, HOUR), "end": end})
        return sorted(datetime.fromtimestamp(hour, UTC) for (hour,) in cursor.fetchall())


def hours_from() -> datetime | None:
    """Return the time before which roll-ups of hours may be deleted, or None if none were deleted."""
    return RollupProgress.objects.values_list("hours_from", flat=True).first()


def whole_days(job: Job, stretch: Stretch) -> Stretch | None:
    """Extend the stretch to whole days at its ends, where hourly roll-ups are deleted and checkpoints archived.

    Return None if the stretch has no such days.
    """
    archived = archived_days(job, stretch.start, stretch.end)
    forgotten = _days_without_hours(job, archived, stretch.start, stretch.end, hours_from()) & archived
    if not forgotten:
        return None
    first, last = floor(stretch.start, DAY), floor(stretch.end, DAY)
    start = first if first in forgotten else stretch.start
    end = last + WHOLE_DAY if last in forgotten and last < stretch.end else stretch.end
    return replace(stretch, start=start, end=end)


def _days_without_hours(
    job: Job, archived: Collection[datetime], start: datetime, end: datetime, kept_from: datetime | None
) -> frozenset[datetime]:
    """Return the days whose hourly roll-ups may be deleted: a part of such a day is computed from checkpoints."""
    first = floor(start, DAY)
    forgotten = set(days_between(start, min(end, kept_from or first)))
    if archived:  # older versions of Waymark deleted hours of archived days without setting hours_from
        oldest = Rollup.objects.filter(job=job, seconds=HOUR).order_by("start").values_list("start", flat=True).first()
        forgotten |= {day for day in archived if oldest is None or day < oldest}
    return frozenset(forgotten)


def _times_of_runs(job: Job) -> dict[int, Between]:
    never = datetime(9999, 1, 1, tzinfo=UTC)
    runs = Run.objects.filter(job=job).values_list("pk", "started_at", "ended_at")
    return {pk: (began - SLACK, ended + SLACK if ended else never) for pk, began, ended in runs}


def _stored(job: Job, cuts: Sequence[Pieces], figures: Sequence[str]) -> Iterator[tuple[int, Row]]:
    asked = [
        (place, seconds, *piece)
        for place, pieces in enumerate(cuts)
        for seconds, several in ((DAY, pieces.days), (HOUR, pieces.hours))
        for piece in several
    ]
    if not asked:
        return
    places, seconds, starts, ends = map(list, zip(*asked, strict=True))
    names = ["start", "version", *COUNTS, *(f"{each}_{what}" for each in figures for what in _OF_A_FIGURE)]
    with connection.cursor() as cursor:
        parameters: dict[str, Any] = {"job": job.pk, "places": places, "seconds": seconds}
        parameters |= {"starts": starts, "ends": ends}
        cursor.execute(_STORED.format(columns=", ".join(f"u.{name}" for name in names)), parameters)
        for place, *values in cursor.fetchall():
            yield place, dict(zip(names, values, strict=True))


_OF_A_FIGURE = ("sum", "min", "max", "sketch")


def _made(
    job: Job, stretches: Sequence[Stretch], cuts: Sequence[Pieces], most: int | None, archived: frozenset[datetime]
) -> Iterator[tuple[int, Row]]:
    """Yield hourly roll-ups computed from checkpoints."""
    asked = [
        (place, stretch.run, *piece)
        for place, (stretch, pieces) in enumerate(zip(stretches, cuts, strict=True))
        for piece in pieces.made
    ]
    found: dict[int, list[pa.Table]] = defaultdict(list)
    try:
        for place, table in of_pieces(job, asked, most, archived):
            found[place].append(table)
    except NotAllRead as why:
        raise NotRolledUp(str(why)) from why
    for place, tables in found.items():
        for row in rolled(pa.concat_tables(tables), HOUR).to_pylist():
            yield place, row
