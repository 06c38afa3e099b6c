"""Compute a job's figures over any time range for pages, from current roll-ups and otherwise from checkpoints.

Without a pipeline, everything is computed from checkpoints, which gives the same result but takes longer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from monitoring.history import sketches
from monitoring.history.catalogue import floor
from monitoring.history.pipeline.columns import COUNTS, DAY, FIGURES, HOUR, VERSION
from monitoring.history.sketches import RANK_ERROR as RANK_ERROR
from monitoring.history.sketches import UnknownSketch as UnknownSketch
from monitoring.history.stretches import NotRolledUp as NotRolledUp
from monitoring.history.stretches import Stretch, hours_from, read, read_days, read_hours
from monitoring.models import Job, OperatorRollup

WANTED = (0.5, 0.9, 0.95, 0.99)
# A p95 from sketches lies between these percentiles of the checkpoints.
P95_FROM, P95_TO = (round(100 * (0.95 + error), 1) for error in (-RANK_ERROR, RANK_ERROR))
# The figures of checkpoints by column, with their names in roll-ups.
ROLLED = {column: figure for figure, column in FIGURES.items()}
# A chart of more hours than these shows days.
MOST_HOURS = 24 * 31


@dataclass(frozen=True)
class RangeFigures:
    """A figure over one time range.

    `quantiles` of completed checkpoints are those of percentile_disc; the rank of each is at most RANK_ERROR off.
    Counts, sum, minimum and maximum are exact. None: no checkpoint has the figure.
    """

    start: datetime
    end: datetime
    counts: Mapping[str, int]
    known: int  # completed checkpoints that have the figure
    total: int | None
    minimum: int | None
    maximum: int | None
    quantiles: Mapping[float, float | None]

    @property
    def mean(self) -> float | None:
        return self.total / self.known if self.total is not None and self.known else None

    @property
    def median(self) -> float | None:
        return self.quantiles.get(0.5)

    @property
    def p95(self) -> float | None:
        return self.quantiles.get(0.95)


def quantiles(
    job: Job, start: datetime, end: datetime, figure: str = "duration", wanted: Sequence[float] = WANTED
) -> RangeFigures:
    """Return the figure, a key of FIGURES, over the time from `start` to before `end`."""
    return figures_of_ranges(job, [Stretch(start, end)], (figure,), wanted)[0][figure]


def series(
    job: Job,
    start: datetime,
    end: datetime,
    figure: str = "duration",
    wanted: Sequence[float] = WANTED,
    *,
    seconds: int | None = None,
) -> list[RangeFigures]:
    """Return the result of `figures_by_part` for one figure."""
    return [each[figure] for each in figures_by_part(job, Stretch(start, end), (figure,), wanted, seconds=seconds)]


def figures_of_ranges(
    job: Job, stretches: Sequence[Stretch], figures: Sequence[str], wanted: Sequence[float], *, most: int | None = None
) -> list[Mapping[str, RangeFigures]]:
    """Return all figures of each time range, with a constant number of statements. `most`: see stretches.read."""
    for each in stretches:
        _check(figures, each)
    found = read(job, stretches, figures, most=most)
    return _figures(
        [Part(each.start, each.end, rows) for each, rows in zip(stretches, found, strict=True)], figures, wanted
    )


def of_whole_days(
    jobs: Collection[int], since: datetime, until: datetime, figure: str, share: float
) -> dict[int, float | None]:
    """Return a quantile of many jobs over whole UTC days.

    Jobs without current roll-ups are left out. None: no checkpoint has the figure.
    """
    try:
        found = read_days(jobs, since, until, figure)
        results = _each([Part(since, until, rows) for rows in found.values()], figure, (share,))
        return {job: each.quantiles[share] for job, each in zip(found, results, strict=True)}
    except (NotRolledUp, UnknownSketch):
        return {}


def of_the_same_hours(
    jobs: Collection[int], days: Collection[date], figure: str, share: float, enough: int
) -> dict[int, list[float | None]]:
    """Return a quantile of many jobs for each of the 24 hours (UTC), over that hour of all the days.

    None: fewer than `enough` days have the figure.
    """
    midnights = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in days]
    try:
        found = read_hours(jobs, midnights, figure)
        parts = [
            Part(midnights[0], midnights[-1], hour) for rows in found.values() for hour in _by_hour_of_day(rows, figure)
        ]
        results = _each(parts, figure, (share,))
    except (NotRolledUp, UnknownSketch):
        return {}
    values = [
        each.quantiles[share] if len(part.rows) >= enough else None for part, each in zip(parts, results, strict=True)
    ]
    return {job: values[24 * place : 24 * (place + 1)] for place, job in enumerate(found)}


def _by_hour_of_day(rows: Sequence[Mapping[str, Any]], figure: str) -> list[list[Mapping[str, Any]]]:
    hours: list[list[Mapping[str, Any]]] = [[] for _ in range(24)]
    for row in rows:
        if row[f"{figure}_sum"] is not None:
            hours[row["start"].astimezone(UTC).hour].append(row)
    return hours


def of_operator(rollups: Sequence[OperatorRollup], share: float) -> float | None:
    """Return a quantile of the durations in roll-ups of one operator, in milliseconds; None: they are not known."""
    known = [row for row in rollups if row.duration_sum is not None]
    if any(row.version != VERSION for row in known):
        return None
    try:
        (value,) = sketches.quantiles(sketches.merged(row.duration_sketch for row in known), (share,))
    except UnknownSketch:
        return None
    least = min((row.duration_min for row in known if row.duration_min is not None), default=None)
    most = max((row.duration_max for row in known if row.duration_max is not None), default=None)
    return _within(value, least, most)


def figures_by_part(
    job: Job,
    stretch: Stretch,
    figures: Sequence[str],
    wanted: Sequence[float],
    *,
    seconds: int | None = None,
    most: int | None = None,
) -> list[Mapping[str, RangeFigures]]:
    """Return the figures by hour or day (UTC), oldest first, without those that have no checkpoints.

    If `seconds` is None, the length of the time range and the kept roll-ups decide between hours and days. The first
    and the last part are cut at the ends of the time range.
    """
    _check(figures, stretch)
    if seconds is None:
        seconds = HOUR if in_hours(stretch) else DAY
    width = timedelta(seconds=seconds)
    grouped: dict[datetime, list[dict[str, Any]]] = {}
    for row in read(job, [stretch], figures, longest=seconds, most=most)[0]:
        grouped.setdefault(floor(row["start"], seconds), []).append(row)
    parts = [
        Part(max(stretch.start, at), min(stretch.end, at + width), rows)
        for at, rows in sorted(grouped.items())
        if any(row[name] for row in rows for name in COUNTS)
    ]
    return _figures(parts, figures, wanted)


def in_hours(stretch: Stretch) -> bool:
    """Return whether a chart of the time range shows hours, and not days: it is short, and its hours are kept."""
    if stretch.end - stretch.start > timedelta(hours=MOST_HOURS):
        return False
    kept_from = hours_from()
    return kept_from is None or stretch.start >= kept_from


def _check(figures: Sequence[str], stretch: Stretch) -> None:
    for figure in figures:
        if figure not in FIGURES:
            raise ValueError(f"figure {figure!r} is not known; allowed are {', '.join(FIGURES)}")
    start, end = stretch.start, stretch.end
    if start.tzinfo is None or end.tzinfo is None or start > end:
        raise ValueError(
            f"start {start} and end {end} are not allowed; both need a time zone, and start must not be after end"
        )


@dataclass(frozen=True)
class Part:
    """The roll-ups that together cover a time range."""

    start: datetime
    end: datetime
    rows: Sequence[Mapping[str, Any]]


def _figures(
    parts: Sequence[Part], figures: Sequence[str], wanted: Sequence[float]
) -> list[Mapping[str, RangeFigures]]:
    by_figure = [_each(parts, figure, wanted) for figure in figures]
    return [dict(zip(figures, values, strict=True)) for values in zip(*by_figure, strict=True)]


def _each(parts: Sequence[Part], figure: str, wanted: Sequence[float]) -> list[RangeFigures]:
    for row in (row for part in parts for row in part.rows):
        if row["version"] != VERSION:
            raise UnknownSketch(f"the roll-up of {row['start']} has version {row['version']}, which is not supported")
    return [_figures_of(part, figure, wanted) for part in parts]


def _figures_of(part: Part, figure: str, wanted: Sequence[float]) -> RangeFigures:
    rows = part.rows
    sketch = sketches.merged(row[f"{figure}_sketch"] for row in rows)

    def of(what: str) -> list[int]:
        return [row[f"{figure}_{what}"] for row in rows if row[f"{figure}_{what}"] is not None]

    minimum, maximum = min(of("min"), default=None), max(of("max"), default=None)
    values = sketches.quantiles(sketch, wanted)
    return RangeFigures(
        start=part.start,
        end=part.end,
        counts={name: sum(row[name] for row in rows) for name in COUNTS},
        known=sketch.n,
        total=sum(of("sum")) if of("sum") else None,
        minimum=minimum,
        maximum=maximum,
        quantiles={q: _within(value, minimum, maximum) for q, value in zip(wanted, values, strict=True)},
    )


def _within(value: float | None, minimum: int | None, maximum: int | None) -> float | None:
    """Return the quantile limited to the range from the minimum to the maximum, which it may leave by its rounding."""
    if value is None or minimum is None or maximum is None:
        return None
    return min(max(value, minimum), maximum)
