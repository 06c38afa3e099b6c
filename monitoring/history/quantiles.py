"""A job's figures over any time, for pages: from roll-ups where they are up to date, from checkpoints where not.

Never a wrong number: an hour in which anything changed since the pipeline's last batch, and the begun hours at both
ends, are counted from the checkpoints themselves. Without a pipeline everything is, which is as right and takes longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from django.db import connection

from monitoring.history.pipeline import sketch
from monitoring.history.pipeline.columns import CHANGES, COUNTS, DAY, FIGURES, HOUR, REASON, ROLLUPS
from monitoring.history.pipeline.rolling import by_hour
from monitoring.history.pipeline.sketch import RELATIVE_ERROR as RELATIVE_ERROR
from monitoring.models import Job, Rollup

WANTED = (0.5, 0.9, 0.95, 0.99)
# A chart of more than so many hours shows days.
MOST_HOURS = 24 * 21

_DONE = """
SELECT done FROM monitoring_rollupprogress WHERE done <= pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""
_CHANGED = """
SELECT DISTINCT floor(date_part('epoch', triggered_at) / 3600)::bigint * 3600 FROM (
    SELECT c.triggered_at FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id
    WHERE r.job_id = %(job)s AND c.changed_in >= %(done)s AND c.triggered_at >= %(start)s AND c.triggered_at < %(end)s
    UNION ALL
    SELECT triggered_at FROM monitoring_checkpointdeletion
    WHERE job_id = %(job)s AND deleted_in >= %(done)s AND triggered_at >= %(start)s AND triggered_at < %(end)s
) changed
"""
_REASON = REASON.replace("failure_message", "c.failure_message")
_CHECKPOINTS = f"""
SELECT r.job_id, floor(date_part('epoch', c.triggered_at) / 3600)::bigint * 3600,
       floor(date_part('epoch', c.triggered_at))::bigint, c.status, c.is_savepoint,
       CASE WHEN c.status = 'FAILED' THEN {_REASON} END,
       {", ".join(f"c.{column}" for column in FIGURES.values())}
FROM unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) AS stretch (start, until)
CROSS JOIN monitoring_run r
JOIN monitoring_checkpoint c ON c.run_id = r.id AND c.triggered_at >= stretch.start AND c.triggered_at < stretch.until
WHERE r.job_id = %(job)s AND c.triggered_at >= %(first)s AND c.triggered_at < %(last)s
"""  # noqa: S608 (constants only)

Stretch = tuple[datetime, datetime]


@dataclass(frozen=True)
class Told:
    """Of one stretch of time. `quantiles` of completed checkpoints by share, as percentile_disc tells them but at most
    RELATIVE_ERROR off; counts, sum, minimum and maximum are exact. None: no checkpoint tells the figure."""

    start: datetime
    end: datetime
    counts: Mapping[str, int]
    known: int  # completed checkpoints that tell the figure
    total: int | None
    minimum: int | None
    maximum: int | None
    quantiles: Mapping[float, float | None]

    @property
    def mean(self) -> float | None:
        return self.total / self.known if self.total is not None and self.known else None


def quantiles(
    job: Job, start: datetime, end: datetime, figure: str = "duration", wanted: Sequence[float] = WANTED
) -> Told:
    """`figure`: a key of FIGURES. `start` is told, `end` no longer."""
    _check(figure, start, end)
    return _told(start, end, _rows(job, start, end), figure, wanted)


def series(
    job: Job,
    start: datetime,
    end: datetime,
    figure: str = "duration",
    wanted: Sequence[float] = WANTED,
    *,
    seconds: int | None = None,
) -> list[Told]:
    """By hour or by day (UTC), as `seconds` says, else by the length, oldest first; those without any checkpoint are
    left out. The first and the last are of the part that lies between `start` and `end`."""
    _check(figure, start, end)
    if seconds is None:
        seconds = HOUR if end - start <= timedelta(hours=MOST_HOURS) else DAY
    width = timedelta(seconds=seconds)
    grouped: dict[datetime, list[dict[str, Any]]] = {}
    for row in _rows(job, start, end, most=seconds):
        grouped.setdefault(_floor(row["start"], seconds), []).append(row)
    return [
        _told(max(start, at), min(end, at + width), rows, figure, wanted)
        for at, rows in sorted(grouped.items())
        if any(row[name] for row in rows for name in COUNTS)
    ]


def _check(figure: str, start: datetime, end: datetime) -> None:
    if figure not in FIGURES:
        raise ValueError(f"figure {figure!r} is not known; allowed are {', '.join(FIGURES)}")
    if start.tzinfo is None or end.tzinfo is None or start > end:
        raise ValueError(f"start {start} and end {end}: two moments with a time zone, in this order")


def _rows(job: Job, start: datetime, end: datetime, most: int = DAY) -> list[dict[str, Any]]:
    """Roll-ups, made of rows or stored, that together are the stretch; none longer than `most` seconds."""
    first, last = _floor(start + timedelta(seconds=HOUR - 1, microseconds=999_999), HOUR), _floor(end, HOUR)
    done = _done()
    if done is None or first >= last:
        return _made(job, [(start, end)])
    changed = _changed_hours(job, done, first, last)
    edges = [(start, first), (last, end), *((at, at + timedelta(hours=1)) for at in changed)]
    return [*_made(job, edges), *_stored(job, first, last, changed, most)]


def _done() -> int | None:
    """The transaction up to which roll-ups are made; None: there are none, or another server numbered it."""
    with connection.cursor() as cursor:
        cursor.execute(_DONE)
        found = cursor.fetchone()
    return found[0] if found else None


def _changed_hours(job: Job, done: int, start: datetime, end: datetime) -> list[datetime]:
    with connection.cursor() as cursor:
        cursor.execute(_CHANGED, {"job": job.pk, "done": done, "start": start, "end": end})
        return sorted(datetime.fromtimestamp(hour, UTC) for (hour,) in cursor.fetchall())


def _stored(job: Job, start: datetime, end: datetime, left_out: Iterable[datetime], most: int) -> list[dict[str, Any]]:
    """Whole days where they lie within and nothing of them is left out, else their hours."""
    out = set(left_out)
    broken = {_floor(at, DAY) for at in out}
    first, last = _floor(start + timedelta(seconds=DAY - 1), DAY), _floor(end, DAY)
    whole = most >= DAY and first < last
    kept = Rollup.objects.filter(job=job)
    rows: list[dict[str, Any]] = []
    if whole:
        days = kept.filter(seconds=DAY, start__gte=first, start__lt=last)
        rows += [row for row in days.values(*ROLLUPS.names) if row["start"] not in broken]
    hours = kept.filter(seconds=HOUR, start__gte=start, start__lt=end)
    if whole and not broken:
        hours = hours.exclude(start__gte=first, start__lt=last)
    for row in hours.values(*ROLLUPS.names):
        day = _floor(row["start"], DAY)
        if row["start"] not in out and not (whole and first <= day < last and day not in broken):
            rows.append(row)
    return rows


def _made(job: Job, stretches: Iterable[Stretch]) -> list[dict[str, Any]]:
    """By hour, from the checkpoints themselves."""
    wanted = [each for each in stretches if each[0] < each[1]]
    if not wanted:
        return []
    starts, ends = zip(*wanted, strict=True)
    asked = {"job": job.pk, "starts": list(starts), "ends": list(ends), "first": min(starts), "last": max(ends)}
    with connection.cursor() as cursor:
        cursor.execute(_CHECKPOINTS, asked)
        found = cursor.fetchall()
    if not found:
        return []
    columns = zip(*found, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGES, strict=True)]
    made: list[dict[str, Any]] = by_hour(pa.table(arrays, schema=CHANGES)).to_pylist()
    return made


def _told(
    start: datetime, end: datetime, rows: Sequence[Mapping[str, Any]], figure: str, wanted: Sequence[float]
) -> Told:
    for row in rows:
        if row["version"] != sketch.VERSION:
            raise sketch.UnknownSketch(f"the roll-up of {row['start']} is of version {row['version']}")
    counts = sketch.merged(row[f"{figure}_sketch"] for row in rows)

    def of(what: str) -> list[int]:
        return [row[f"{figure}_{what}"] for row in rows if row[f"{figure}_{what}"] is not None]

    minimum, maximum = min(of("min"), default=None), max(of("max"), default=None)
    told = sketch.quantiles(counts, wanted)
    return Told(
        start=start,
        end=end,
        counts={name: sum(row[name] for row in rows) for name in COUNTS},
        known=int(counts.sum()),
        total=sum(of("sum")) if of("sum") else None,
        minimum=minimum,
        maximum=maximum,
        quantiles={q: _within(value, minimum, maximum) for q, value in zip(wanted, told, strict=True)},
    )


def _within(value: float | None, minimum: int | None, maximum: int | None) -> float | None:
    """No quantile is told that lies outside of what there was."""
    if value is None or minimum is None or maximum is None:
        return None
    return float(np.clip(value, minimum, maximum))


def _floor(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, UTC)


__all__ = ["RELATIVE_ERROR", "WANTED", "Told", "quantiles", "series"]
