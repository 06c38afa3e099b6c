"""Gather figures of completed checkpoints (durations and sizes), and the baselines of each job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from math import inf
from typing import cast

from monitoring.alerts.gathering.query import LONGEST, FactQuery, Found, by_job, facts_of, select
from monitoring.alerts.kinds.levels import CheckpointFigure
from monitoring.alerts.kinds.relative import ENOUGH, RelativeFigure, weeks_of
from monitoring.history.quantiles import ROLLED, of_the_same_hours, of_whole_days
from monitoring.models import FigureBaseline, HourlyBaseline

_COLUMNS = ("end_to_end_duration", "alignment_max", "start_delay_max", "state_size")
_HIGHEST = f"""
SELECT r.job_id, {", ".join(f"max(c.{column})" for column in _COLUMNS)}
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE r.job_id = ANY(%(jobs)s) AND (r.ended_at IS NULL OR r.ended_at > %(since)s)
  AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.triggered_at > %(since)s - {LONGEST}
  AND c.latest_ack_at > %(since)s AND c.latest_ack_at <= %(until)s
GROUP BY r.job_id
"""  # noqa: S608 (constants only)

_FIGURES = """
SELECT r.job_id, c.latest_ack_at, c.{column}, c.checkpoint_id, c.id, ''
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE r.job_id = ANY(%(jobs)s) AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.{column} IS NOT NULL
  AND c.latest_ack_at > %(since)s AND c.latest_ack_at <= %(until)s
  AND (r.ended_at IS NULL OR r.ended_at > %(since)s)
UNION ALL
SELECT r.job_id, last.* FROM (
    SELECT DISTINCT ON (job_id) job_id, id FROM monitoring_run WHERE job_id = ANY(%(jobs)s)
    ORDER BY job_id, number DESC
) r CROSS JOIN LATERAL (
    SELECT c.latest_ack_at, c.{column}, c.checkpoint_id, c.id, '' FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.latest_ack_at <= %(since)s
      AND c.{column} IS NOT NULL
    ORDER BY c.triggered_at DESC LIMIT 1
) last
"""

_P95 = """
SELECT r.job_id, percentile_disc(0.95) WITHIN GROUP (ORDER BY c.{column})
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE r.job_id = ANY(%(jobs)s) AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.{column} IS NOT NULL
  AND c.triggered_at >= %(since)s AND c.triggered_at < %(until)s AND (r.ended_at IS NULL OR r.ended_at > %(since)s)
GROUP BY r.job_id
"""
_BASELINES = """
SELECT job_id, p95 FROM monitoring_figurebaseline
WHERE day = %(day)s AND days = %(days)s AND figure = %(figure)s AND job_id = ANY(%(jobs)s)
"""
_P95_OF_HOURS = """
SELECT r.job_id, date_part('hour', c.triggered_at AT TIME ZONE 'UTC')::int,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY c.{column})
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE r.job_id = ANY(%(jobs)s) AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.{column} IS NOT NULL
  AND c.triggered_at >= %(since)s AND c.triggered_at < %(until)s AND (r.ended_at IS NULL OR r.ended_at > %(since)s)
  AND (c.triggered_at AT TIME ZONE 'UTC')::date = ANY(%(dates)s::date[])
GROUP BY 1, 2 HAVING count(DISTINCT (c.triggered_at AT TIME ZONE 'UTC')::date) >= %(enough)s
"""
_BASELINES_OF_HOURS = """
SELECT job_id, p95s FROM monitoring_hourlybaseline
WHERE day = %(day)s AND weeks = %(weeks)s AND figure = %(figure)s AND job_id = ANY(%(jobs)s)
"""
_KEPT = timedelta(days=100)
_AT_ONCE = 500  # jobs whose hourly roll-ups are in memory at the same time
ByHour = Mapping[date, Sequence[float | None]]


def gather_figures(query: FactQuery) -> Found:
    kind = cast("CheckpointFigure", query.kind)
    highest = _highest(query, kind.column)
    if isinstance(kind, RelativeFigure):
        return _relative(query, kind, highest)
    return _load(query, kind, {*(job for job, figure in highest.items() if figure >= query.least), *query.must})


def _highest(query: FactQuery, column: str) -> dict[int, int]:
    """Return the highest figure of each job that has one in the time range."""
    parameters = {"since": query.since, "until": query.until, "jobs": list(query.jobs)}
    rows = query.once("highest figures", lambda: select(_HIGHEST, parameters))
    place = _COLUMNS.index(column) + 1
    return {row[0]: row[place] for row in rows if row[place] is not None}


def _load(query: FactQuery, kind: CheckpointFigure, jobs: set[int]) -> Found:
    if not jobs:
        return {}
    parameters = {"since": query.since, "until": query.until, "jobs": list(jobs)}
    return facts_of(query, by_job(select(_FIGURES.format(column=kind.column), parameters)))


def _relative(query: FactQuery, kind: CheckpointFigure, highest: Mapping[int, int]) -> Found:
    """Gather figures with baselines. The rules of one request have the same days and weeks (`gathered_by`)."""
    days, weeks = query.terms[0].parameters["days"], weeks_of(query.terms[0])
    jobs, dates = {*highest, *query.must}, _dates(query.since, query.until)
    usual = baselines(kind.column, jobs, days, dates)
    by_hour = baselines_of_hours(kind.column, jobs, weeks, dates) if weeks else {}
    floor = min(terms.parameters.get("least_ms") or 0 for terms in query.terms)
    least = {job: query.least * max(_lowest(usual.get(job, {}), by_hour.get(job, {})), floor) for job in jobs}
    moved = {job for job, figure in highest.items() if 100 * figure >= least[job]}
    found = _load(query, kind, moved | set(query.must))
    # The last checkpoint before the time range is compared with its own hour, too.
    older = {event.at.astimezone(UTC).date() for facts in found.values() for event in facts.events} - set(dates)
    of_older = baselines_of_hours(kind.column, set(found), weeks, sorted(older)) if weeks else {}
    return {
        job: replace(facts, baseline=usual.get(job, {}), by_hour={**by_hour.get(job, {}), **of_older.get(job, {})})
        for job, facts in found.items()
    }


def _lowest(days: Mapping[date, float], hours: ByHour) -> float:
    """Return the lowest baseline of a job, or inf if it has none."""
    of_hours = (p95 for each in hours.values() for p95 in each if p95 is not None)
    return min((*days.values(), *of_hours), default=inf)


def baselines(column: str, jobs: set[int], days: int, dates: Iterable[date]) -> dict[int, dict[date, float]]:
    """Return each job's p95 of the figure over the `days` whole UTC days before each date.

    A p95 is computed once and then stored.
    """
    usual: dict[int, dict[date, float]] = defaultdict(dict)
    for day in dates:
        kept = dict(select(_BASELINES, {"jobs": list(jobs), "figure": column, "day": day, "days": days}))
        missing = jobs - kept.keys()
        if missing:
            kept |= _compute(column, missing, days, day)
        for job, p95 in kept.items():
            if p95 is not None:
                usual[job][day] = p95
    return usual


def _compute(column: str, jobs: set[int], days: int, day: date) -> dict[int, int | None]:
    """Compute and store the p95 from roll-ups (approximate, savepoints included), or from checkpoints without them.

    Later calls use the stored number. None is stored as well, so that a job without data is computed once a day.
    """
    until = datetime.combine(day, time(), UTC)
    since = until - timedelta(days=days)
    rolled = of_whole_days(jobs, since, until, ROLLED[column], 0.95)
    found: dict[int, int | None] = dict.fromkeys(jobs)
    found |= {job: None if p95 is None else round(p95) for job, p95 in rolled.items()}
    if rest := list(jobs - rolled.keys()):
        found |= dict(select(_P95.format(column=column), {"jobs": rest, "since": since, "until": until}))
    rows = [FigureBaseline(job_id=job, figure=column, day=day, days=days, p95=p95) for job, p95 in found.items()]
    FigureBaseline.objects.bulk_create(rows, batch_size=5000, ignore_conflicts=True)
    FigureBaseline.objects.filter(day__lt=day - _KEPT).delete()
    return found


def baselines_of_hours(column: str, jobs: set[int], weeks: int, dates: Iterable[date]) -> dict[int, ByHour]:
    """Return, for each date, the p95 of each hour on the same weekday of the `weeks` weeks before.

    An hour is None if fewer than ENOUGH weeks have data for it.
    """
    usual: dict[int, dict[date, Sequence[float | None]]] = defaultdict(dict)
    for day in dates:
        asked = {"jobs": list(jobs), "figure": column, "day": day, "weeks": weeks}
        kept = dict(select(_BASELINES_OF_HOURS, asked))
        missing = sorted(jobs - kept.keys())
        for first in range(0, len(missing), _AT_ONCE):
            kept |= _compute_hours(column, missing[first : first + _AT_ONCE], weeks, day)
        for job, p95s in kept.items():
            usual[job][day] = p95s
    return {**usual}


def _compute_hours(column: str, jobs: Sequence[int], weeks: int, day: date) -> dict[int, list[int | None]]:
    dates = [day - timedelta(weeks=number) for number in range(1, weeks + 1)]
    rolled = of_the_same_hours(jobs, dates, ROLLED[column], 0.95, ENOUGH)
    found: dict[int, list[int | None]] = {job: [None] * 24 for job in jobs}
    found |= {job: [None if p95 is None else round(p95) for p95 in p95s] for job, p95s in rolled.items()}
    if rest := [job for job in jobs if job not in rolled]:
        until = datetime.combine(dates[0] + timedelta(days=1), time(), UTC)
        asked = {"jobs": rest, "dates": [f"{each}" for each in dates], "enough": ENOUGH, "until": until}
        asked["since"] = datetime.combine(dates[-1], time(), UTC)
        for job, hour, p95 in select(_P95_OF_HOURS.format(column=column), asked):
            found[job][hour] = p95
    rows = [HourlyBaseline(job_id=job, figure=column, day=day, weeks=weeks, p95s=each) for job, each in found.items()]
    HourlyBaseline.objects.bulk_create(rows, batch_size=1000, ignore_conflicts=True)
    HourlyBaseline.objects.filter(day__lt=day - _KEPT).delete()
    return found


def _dates(since: datetime, until: datetime) -> list[date]:
    first, last = since.astimezone(UTC).date(), until.astimezone(UTC).date()
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]
