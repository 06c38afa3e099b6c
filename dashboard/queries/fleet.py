"""The fleet page: every job's health, and the figures of the jobs on the shown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.core.paginator import Page, Paginator

from dashboard.access.reach import EVERYTHING, Reach
from dashboard.health import Freshness, Health, JobFacts, Level, intervals_waited, judge
from dashboard.queries.facts import gather_facts, jobs_at_a_glance, jobs_with_runs, select
from monitoring.alerts.scope import labels_of
from monitoring.alerts.selector import BadSelector, Selector, parse
from monitoring.models import Cluster, Job, SavepointState

PAGE_SIZE = 50
SPARK_POINTS = 40
DAYS = 7

# The last hour, so that a page that renews itself every few seconds reads little however long the history is.
_RECENT = """
WITH recent AS (
    SELECT r.job_id, c.end_to_end_duration AS duration, c.alignment_max AS alignment, c.triggered_at,
           row_number() OVER (PARTITION BY r.job_id ORDER BY c.triggered_at DESC) AS position
    FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
    WHERE r.job_id = ANY(%s) AND c.triggered_at > %s AND c.status = 'COMPLETED' AND NOT c.is_savepoint
      AND (r.ended_at IS NULL OR r.ended_at > %s)
)
SELECT job_id,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY duration) AS duration_p95,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY alignment) AS alignment_p95,
       array_agg(duration ORDER BY triggered_at) FILTER (WHERE position <= %s) AS durations
FROM recent GROUP BY job_id
"""

_FAILED_PER_DAY = """
SELECT r.job_id, floor(extract(epoch FROM (%s - c.triggered_at)) / 86400)::int AS days_ago, count(*) AS failed
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE r.job_id = ANY(%s) AND c.status = 'FAILED' AND c.triggered_at > %s
  AND (r.ended_at IS NULL OR r.ended_at > %s)
GROUP BY 1, 2
"""

_SAVEPOINTS = """
SELECT DISTINCT ON (job_id) job_id, completed_at FROM monitoring_savepoint
WHERE job_id = ANY(%s) AND state = %s AND completed_at IS NOT NULL
ORDER BY job_id, completed_at DESC
"""


@dataclass(frozen=True)
class Figures:
    """What a row shows beyond the job's health."""

    duration_p95: float | None = None
    alignment_p95: float | None = None
    durations: tuple[int, ...] = ()
    failed_per_day: tuple[int, ...] = (0,) * DAYS  # oldest first
    savepoint_at: datetime | None = None


@dataclass(frozen=True)
class JobRow:
    facts: JobFacts
    health: Health
    intervals: float | None = None  # waited for the next completed checkpoint, in the job's own intervals
    figures: Figures = field(default_factory=Figures)


@dataclass(frozen=True)
class Fleet:
    rows: Page[JobRow]
    strip: list[JobRow]
    counts: dict[Level, int]
    freshness: dict[Freshness, int]
    clusters: list[Cluster]
    known_jobs: int  # before any filter
    matching: list[JobRow] = field(default_factory=list)  # of all pages, without figures, the most urgent first

    @property
    def silent_clusters(self) -> list[Cluster]:
        return [cluster for cluster in self.clusters if cluster.enabled and not cluster.reachable]

    @property
    def last_answer_at(self) -> datetime | None:
        return max((c.last_answer_at for c in self.clusters if c.last_answer_at), default=None)


@dataclass(frozen=True)
class Selection:
    """What the reader asked for. `level` is a Level's word, `labels` a selector as rules have it."""

    text: str = ""
    level: str = ""
    cluster: str = ""
    labels: str = ""
    page: str = "1"

    @cached_property
    def selector(self) -> Selector | None:
        """None for one that makes no sense: it chooses nothing."""
        try:
            return parse(self.labels)
        except BadSelector:
            return None

    @property
    def problem(self) -> str:
        try:
            parse(self.labels)
        except BadSelector as bad:
            return str(bad)
        return ""

    @property
    def narrows(self) -> bool:
        return bool(self.text or self.level or self.cluster or self.labels)


def read_fleet(chosen: Selection, now: datetime, reach: Reach = EVERYTHING) -> Fleet:
    """Of what may be seen."""
    clusters = list(reach.narrow_clusters(Cluster.objects.filter(archived_at=None)))
    jobs = jobs_at_a_glance(reach.narrow(Job.objects.filter(cluster__archived_at=None)))
    everything = [JobRow(facts, judge(facts, now), intervals_waited(facts, now)) for facts in gather_facts(jobs, now)]
    everything.sort(key=lambda row: (row.health.level.urgency, row.facts.job.name.lower(), row.facts.job.pk))
    shown = [row for row in everything if _matches(row, chosen)]
    page = Paginator(shown, PAGE_SIZE).get_page(chosen.page)
    page.object_list = _with_figures(whole(page.object_list), now)
    return Fleet(
        rows=page,
        strip=sorted(shown, key=lambda row: (row.facts.cluster.name, row.facts.job.name)),
        counts=Counter(row.health.level for row in everything),
        freshness=Counter(row.health.freshness for row in shown),
        clusters=clusters,
        known_jobs=len(everything),
        matching=shown,
    )


def _matches(row: JobRow, chosen: Selection) -> bool:
    text = chosen.text.strip().lower()
    return (
        (not text or text in row.facts.job.name.lower() or text in row.facts.cluster.name.lower())
        and (not chosen.level or row.health.level.word == chosen.level)
        and (not chosen.cluster or row.facts.cluster.name == chosen.cluster)
        and chosen.selector is not None
        and chosen.selector.matches(labels_of(row.facts.job.name, row.facts.job.labels, row.facts.cluster))
    )


def whole(rows: Iterable[JobRow]) -> list[JobRow]:
    """With all that is stored of the jobs: those of one page are few."""
    listed = list(rows)
    jobs = jobs_with_runs().in_bulk([row.facts.job.pk for row in listed])
    return [
        replace(row, facts=replace(row.facts, job=job, run=job.current_run))
        for row in listed
        if (job := jobs.get(row.facts.job.pk))
    ]


def _with_figures(rows: list[JobRow], now: datetime) -> list[JobRow]:
    ids = [row.facts.job.pk for row in rows]
    hour, week = now - timedelta(hours=1), now - timedelta(days=DAYS)
    recent = {r["job_id"]: r for r in select(_RECENT, [ids, hour, hour, SPARK_POINTS])}
    savepoints = {r["job_id"]: r["completed_at"] for r in select(_SAVEPOINTS, [ids, SavepointState.COMPLETED.value])}
    failed: dict[int, Counter[int]] = {}
    for r in select(_FAILED_PER_DAY, [now, ids, week, week]):
        failed.setdefault(r["job_id"], Counter())[r["days_ago"]] += r["failed"]
    return [
        replace(row, figures=_figures(recent.get(pk, {}), failed.get(pk, Counter()), savepoints.get(pk)))
        for pk, row in zip(ids, rows, strict=True)
    ]


def _figures(recent: dict[str, Any], failed: Counter[int], savepoint_at: datetime | None) -> Figures:
    return Figures(
        duration_p95=recent.get("duration_p95"),
        alignment_p95=recent.get("alignment_p95"),
        durations=tuple(d for d in recent.get("durations") or () if d is not None),
        failed_per_day=tuple(failed[day] for day in reversed(range(DAYS))),
        savepoint_at=savepoint_at,
    )
