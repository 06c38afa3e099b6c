"""Count, for UTC days of many jobs, the checkpoints that completed, took a limit or longer, or failed.

The count is exact if the day's checkpoints are in PostgreSQL, and if the roll-up of the day shows that all or none of
them reached the limit. For days whose checkpoints are archived, the share of the long ones comes from the quantile
sketch and is at most RANK_ERROR off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from django.db import connection

from monitoring.history import sketches
from monitoring.history.pipeline.columns import VERSION
from monitoring.history.sketches import UnknownSketch
from monitoring.history.stretches import NotRolledUp, read_days

DAY = timedelta(days=1)
# One index look-up for each day and each run that was live on it. With a plain join, PostgreSQL would read all
# checkpoints of the runs. The engine's clock and Waymark's may differ by 5 min.
PIECES = """
FROM unnest(%(jobs)s::bigint[], %(days)s::timestamptz[], %(limits)s::bigint[]) AS p (job, day, limit_ms)
JOIN monitoring_run r ON r.job_id = p.job AND r.started_at < p.day + interval '24 hours 5 min'
 AND (r.ended_at IS NULL OR r.ended_at >= p.day - interval '5 min')
CROSS JOIN LATERAL (
    SELECT * FROM monitoring_checkpoint
    WHERE run_id = r.id AND triggered_at >= p.day AND triggered_at < p.day + interval '24 hours'
      AND triggered_at >= %(first)s AND triggered_at < %(last)s
    OFFSET 0
) c
"""
_COUNTS = f"""
SELECT p.job, p.day, count(*) FILTER (WHERE c.status = 'COMPLETED'),
       count(*) FILTER (WHERE c.status = 'COMPLETED' AND c.end_to_end_duration >= p.limit_ms),
       count(*) FILTER (WHERE c.status = 'FAILED')
{PIECES} GROUP BY 1, 2
"""


class JobDay(NamedTuple):
    """A UTC day of a job, and the limit in milliseconds to compare its checkpoints with."""

    job: int
    day: date
    limit_ms: int


@dataclass(frozen=True)
class DayCount:
    """Savepoints are included. `long`: the completed checkpoints that took the limit or longer."""

    completed: int = 0
    long: int = 0
    failed: int = 0


def count_days(requested: Collection[JobDay], today: date) -> dict[JobDay, DayCount]:
    """Return the count of each requested day. `today` and later days are never read from roll-ups."""
    rolled = _rolled([each for each in requested if each.day < today])
    unsure = {each for each in requested if each not in rolled or _is_unsure(each, rolled[each])}
    counted = _count_checkpoints(unsure)
    found: dict[JobDay, DayCount] = {}
    for each in requested:
        row = rolled.get(each)
        if row is None:
            found[each] = counted.get(each, DayCount())
        elif each in counted and counted[each].completed >= row["completed"]:
            found[each] = counted[each]
        else:
            found[each] = _from_rollup(each, row) or counted.get(each, DayCount())
    return found


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def parameters_of(requested: Collection[JobDay]) -> dict[str, Any]:
    """Return the parameters of PIECES. `requested` must not be empty."""
    jobs, days, limits = map(list, zip(*requested, strict=True))
    first, last = midnight(min(days)), midnight(max(days)) + DAY
    return {"jobs": jobs, "days": [midnight(day) for day in days], "limits": limits, "first": first, "last": last}


Rollups = Mapping[JobDay, Mapping[str, Any]]
_EMPTY: Mapping[str, Any] = {"completed": 0, "failed": 0, "duration_min": None, "duration_max": None}


def _rolled(requested: Collection[JobDay]) -> Rollups:
    """Return the roll-ups of the days. A day is missing if its roll-up is not current or cannot be read."""
    if not requested:
        return {}
    first, last = min(each.day for each in requested), max(each.day for each in requested)
    try:
        rows = read_days({each.job for each in requested}, midnight(first), midnight(last) + DAY, "duration")
    except NotRolledUp:
        return {}
    by_day = {job: {row["start"].astimezone(UTC).date(): row for row in of_job} for job, of_job in rows.items()}
    found = {each: by_day[each.job].get(each.day, _EMPTY) for each in requested if each.job in by_day}
    return {each: row for each, row in found.items() if row is _EMPTY or row["version"] == VERSION}


def _is_unsure(each: JobDay, row: Mapping[str, Any]) -> bool:
    """Return whether some of the day's checkpoints took the limit or longer, and others did not."""
    longest, shortest = row["duration_max"], row["duration_min"]
    return longest is not None and shortest < each.limit_ms <= longest


def _from_rollup(each: JobDay, row: Mapping[str, Any]) -> DayCount | None:
    """Return None if the sketch cannot be read."""
    longest = row["duration_max"]
    if longest is None or longest < each.limit_ms:
        return DayCount(row["completed"], 0, row["failed"])
    try:
        sketch = sketches.merged([row["duration_sketch"]])
    except UnknownSketch:
        return None
    below = sketches.share_below(sketch, each.limit_ms) if row["duration_min"] < each.limit_ms else 0.0
    return DayCount(row["completed"], round(sketch.n * (1 - (below or 0.0))), row["failed"])


def _count_checkpoints(requested: Collection[JobDay]) -> dict[JobDay, DayCount]:
    if not requested:
        return {}
    limits = {(each.job, each.day): each.limit_ms for each in requested}
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, parameters_of(requested))
        rows = [(job, at.astimezone(UTC).date(), *counts) for job, at, *counts in cursor.fetchall()]
    return {JobDay(job, day, limits[job, day]): DayCount(*counts) for job, day, *counts in rows}
