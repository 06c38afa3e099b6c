"""Read the fleet page: the health of every job, and the figures of the jobs on the shown page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from django.core.paginator import Paginator

from dashboard.access.reach import FULL_REACH, Reach
from dashboard.health import Health, JobFacts, Level, judge_with_cluster, why_unknown
from dashboard.queries.facts import gather_facts, jobs_of_lists, select
from dashboard.queries.ranking import RankedJob, rank_jobs
from dashboard.sorting import Sort
from monitoring.alerts.scope import labels_of
from monitoring.alerts.selector import BadSelector, Selector, parse, parse_stored
from monitoring.models import Cluster, ObjectiveBudget, SavepointState

SORTABLE = ("name", "state", "completed", "duration", "size", "savepoint", "failures", "objective")
PAGE_SIZE = 50
NAMED = 8  # up to this number of jobs, the strip shows the jobs' names and intervals
STRIP_JOBS = 1000  # more boxes would push the list of jobs far below the first screen
PAGES_AT_ONCE = 6  # the most pages in one list: each refresh renders the whole list, so more would be slow
SPARK_POINTS = 40
DAYS = 7

# Only the last hour: the page is refreshed every few seconds and must not read a long history each time.
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
WHERE job_id = ANY(%s) AND state = %s AND gone_at IS NULL AND completed_at IS NOT NULL
ORDER BY job_id, completed_at DESC
"""


Clusters = Mapping[int, Cluster]


@dataclass(frozen=True)
class Figures:
    """The values of a row other than the job's health."""

    duration_p95: float | None = None
    alignment_p95: float | None = None
    durations: tuple[int, ...] = ()
    failed_per_day: tuple[int, ...] = (0,) * DAYS  # oldest first
    savepoint_at: datetime | None = None
    budget: ObjectiveBudget | None = None  # the budget of the job's objective


class JobRow(NamedTuple):
    facts: JobFacts
    health: Health
    figures: Figures = Figures()


@dataclass(frozen=True)
class FleetPage:
    """The rows of the pages `first` to `last`, taken from one read of the list.

    So no job is missing or listed twice, although the order of the jobs changes between two requests.
    """

    rows: list[JobRow]
    first: int
    last: int
    pages: int
    count: int  # the number of jobs on all pages
    size: int = PAGE_SIZE

    @property
    def start(self) -> int:
        return (self.first - 1) * PAGE_SIZE + 1

    @property
    def end(self) -> int:
        return self.start + len(self.rows) - 1

    @property
    def previous(self) -> int | None:
        return self.first - 1 if self.first > 1 else None

    @property
    def next(self) -> int | None:
        return self.last + 1 if self.last < self.pages else None

    @property
    def beat(self) -> str:
        """Return the event of static/dashboard/js/live.js at which the list is refreshed.

        A list of six pages is refreshed at every sixth tick, so that it costs no more CPU time than one page.
        """
        pages = self.last - self.first + 1
        return "tick" if pages <= 1 else f"tick-{pages}"

    @property
    def grows(self) -> bool:
        """Return whether the next page is appended to the list. Otherwise the next page replaces the list."""
        return self.last - self.first + 1 < PAGES_AT_ONCE


@dataclass(frozen=True)
class Fleet:
    """The jobs of the fleet page. Active jobs are those that have not ended, or all if each of them has ended."""

    shown: FleetPage
    strip: list[RankedJob]  # the most urgent of the matching active jobs, by cluster and name
    named: list[JobRow]  # the jobs of `strip`, if there are few
    counts: dict[Level, int]
    levels: dict[Level, int]  # the number of matching active jobs by level
    clusters: list[Cluster]
    known_jobs: int  # the number of jobs without any filter
    label_keys: list[str] = field(default_factory=list)  # the labels by which the list can be grouped
    groups: dict[str, Counter[Level]] = field(default_factory=dict)  # listed jobs by label value and level
    ended: int = 0  # the number of matching jobs that have ended
    matching: list[RankedJob] = field(default_factory=list)  # jobs of all pages, in the order of the list
    has_objectives: bool = False  # whether a listed job has an objective

    @property
    def strip_is_cut(self) -> bool:
        """Return whether there are more active jobs than boxes in the strip."""
        return len(self.strip) < sum(self.levels.values())

    @property
    def folded(self) -> bool:
        """Return whether the list leaves out jobs that have ended."""
        return self.ended > 0 and self.shown.count == sum(self.levels.values()) and Level.ENDED not in self.levels

    @property
    def silent_clusters(self) -> list[Cluster]:
        silent = (cluster for cluster in self.clusters if cluster.enabled and not cluster.reachable)
        return [cluster for cluster in silent if not cluster.has_ended]

    @property
    def last_answer_at(self) -> datetime | None:
        return max((c.last_answer_at for c in self.clusters if c.last_answer_at), default=None)


@dataclass(frozen=True)
class Selection:
    """The filters and pages of a request.

    `level` is the word of a Level, and `labels` a selector as in rules. `upto` is the last shown page, if it is not
    `page`. `sort` is one of SORTABLE; otherwise the most urgent job comes first. Without `ended`, jobs that have ended
    are left out, unless all matching jobs have ended or `level` selects them. `group` is the key of a label: jobs with
    the same value are listed together.
    """

    text: str = ""
    level: str = ""
    cluster: str = ""
    labels: str = ""
    page: str = "1"
    upto: str = ""
    sort: str = ""
    order: str = ""
    ended: bool = True
    group: str = ""

    @property
    def sorting(self) -> Sort:
        return Sort.parse({"sort": self.sort, "order": self.order}, SORTABLE, "")

    @cached_property
    def selector(self) -> Selector | None:
        """Return the parsed selector, or None if its syntax is wrong. Then no job matches."""
        return parse_stored(self.labels)

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


def read_fleet(chosen: Selection, now: datetime, reach: Reach = FULL_REACH) -> Fleet:
    """Return the fleet within `reach`."""
    clusters = _clusters()
    ranked = rank_jobs(clusters, now, reach)
    matching = _matching(ranked, chosen, clusters)
    counts = _by_level(ranked)
    levels = counts if matching is ranked else _by_level(matching)
    active = _without_ended(matching)
    strip = sorted(active[:STRIP_JOBS], key=lambda row: (clusters[row.signs.cluster_id].name, row.signs.name))
    groups = _grouped(_sorted(matching if chosen.ended else active, chosen.sorting, now), chosen.group, clusters)
    listed = [row for rows in groups.values() for row in rows]
    with_objective = _with_objective()
    has_objectives = any(row.signs.pk in with_objective for row in listed) if with_objective else False
    shown = _build_page(listed, chosen, now, has_objectives=has_objectives)
    return Fleet(
        shown=shown,
        strip=strip,
        named=_named(strip, shown.rows, now) if len(strip) <= NAMED else [],
        counts=counts,
        levels=levels if len(active) == len(matching) else levels - Counter({Level.ENDED: levels[Level.ENDED]}),
        clusters=list(reach.narrow_clusters(Cluster.objects.filter(archived_at=None))),
        known_jobs=len(ranked),
        label_keys=_label_keys(ranked, clusters),
        groups={value: _by_level(rows) for value, rows in groups.items()} if chosen.group else {},
        ended=levels[Level.ENDED],
        matching=listed,
        has_objectives=has_objectives,
    )


def _build_page(matching: list[RankedJob], chosen: Selection, now: datetime, *, has_objectives: bool) -> FleetPage:
    paginator = Paginator(matching, PAGE_SIZE)
    first = paginator.get_page(chosen.page).number
    wanted = int(chosen.upto) if chosen.upto.isdecimal() and len(chosen.upto) < 9 else first
    last = min(max(wanted, first), first + PAGES_AT_ONCE - 1, paginator.num_pages)
    rows = read_in_full(matching[(first - 1) * PAGE_SIZE : last * PAGE_SIZE], now)
    return FleetPage(
        with_figures(rows, now, has_objectives=has_objectives), first, last, paginator.num_pages, len(matching)
    )


def matching_jobs(chosen: Selection, now: datetime, reach: Reach) -> list[int]:
    """Return the ids of the jobs on all pages of the list."""
    clusters = _clusters()
    matching = _matching(rank_jobs(clusters, now, reach), chosen, clusters)
    return _ids(matching if chosen.ended else _without_ended(matching))


def read_matching_rows(chosen: Selection, now: datetime, reach: Reach) -> list[JobRow]:
    clusters = _clusters()
    matching = _matching(rank_jobs(clusters, now, reach), chosen, clusters)
    return with_figures(read_in_full(_sorted(matching, chosen.sorting, now), now), now)


def read_in_full(rows: Iterable[RankedJob], now: datetime, *, with_failures: bool = False) -> list[JobRow]:
    """Return the rows with the facts of their jobs, but without figures, in the same order."""
    ids = [row.signs.pk for row in rows]
    jobs = jobs_of_lists().in_bulk(ids)
    clusters = {job.cluster_id: job.cluster for job in jobs.values()}
    unknown_reasons = {pk: why_unknown(cluster, now) for pk, cluster in clusters.items()}
    found = gather_facts((jobs[pk] for pk in ids if pk in jobs), now, with_failures=with_failures)
    return [JobRow(facts, judge_with_cluster(facts, unknown_reasons[facts.cluster.pk], now)) for facts in found]


def _named(strip: list[RankedJob], shown: Iterable[JobRow], now: datetime) -> list[JobRow]:
    """Return the rows of the strip in full. Usually the page shows them, too."""
    known = {row.facts.pk: row for row in shown}
    missing = [row for row in strip if row.signs.pk not in known]
    known |= {row.facts.pk: row for row in (read_in_full(missing, now) if missing else ())}
    return [known[row.signs.pk] for row in strip if row.signs.pk in known]


def _clusters() -> dict[int, Cluster]:
    return Cluster.objects.filter(archived_at=None).in_bulk()


def _by_level(rows: Iterable[RankedJob]) -> Counter[Level]:
    counted = Counter(row.health.level.word for row in rows)  # the hash of a word is much faster than that of a Level
    return Counter({level: counted[level.word] for level in Level if level.word in counted})


def _label_keys(rows: Iterable[RankedJob], clusters: Clusters) -> list[str]:
    """Return the keys of the labels of the jobs and their clusters. Equal labels of thousands of jobs are read once."""
    own = {row.signs.labels for row in rows}
    of_clusters = (clusters[pk].labels for pk in {row.signs.cluster_id for row in rows})
    return sorted({str(key) for labels in (*map(json.loads, own), *of_clusters) for key in labels})


def _matching(rows: list[RankedJob], chosen: Selection, clusters: Clusters) -> list[RankedJob]:
    return [row for row in rows if _matches(row, chosen, clusters)] if chosen.narrows else rows


def _without_ended(rows: list[RankedJob]) -> list[RankedJob]:
    """Return the jobs that have not ended, or all jobs if each of them has ended."""
    return [row for row in rows if row.health.level is not Level.ENDED] or rows


def _sorted(rows: list[RankedJob], sort: Sort, now: datetime) -> list[RankedJob]:
    """Return the rows in the order of a column. Rows with the same value keep the order of their urgency."""
    return sort.apply(rows, _value_of(sort.field, rows, now)) if sort.field else rows


def _grouped(rows: list[RankedJob], key: str, clusters: Clusters) -> dict[str, list[RankedJob]]:
    """Return the rows by the value of a label, in the order of the first row of each group.

    Without a key, there is one group. Jobs without the label are the last group.
    """
    if not key:
        return {"": rows}
    groups: dict[str, list[RankedJob]] = {}
    for row in rows:
        groups.setdefault(_labels_of(row, clusters).get(key, ""), []).append(row)
    without = groups.pop("", [])
    return groups | ({"": without} if without else {})


def label_of(row: JobRow, key: str) -> str:
    """Return the value of a label of the job or its cluster, or "" if neither has it."""
    return labels_of(row.facts.job.name, row.facts.job.labels, row.facts.cluster).get(key, "")


def _labels_of(row: RankedJob, clusters: Clusters) -> dict[str, str]:
    return labels_of(row.signs.name, json.loads(row.signs.labels), clusters[row.signs.cluster_id])


def _value_of(field: str, rows: list[RankedJob], now: datetime) -> Callable[[RankedJob], Any]:
    """Return the function that reads the value of a column as it is shown: an age instead of a time."""
    match field:
        case "name":
            return lambda row: row.signs.name.lower()
        case "state":
            return lambda row: row.health.state_word
        case "completed":
            return lambda row: row.signs.completed_at and -row.signs.completed_at
        case "duration":
            return lambda row: row.signs.duration_ms
        case "size":
            return lambda row: row.signs.state_size
        case "savepoint":
            ages = {pk: now - at for pk, at in _newest_savepoints(_ids(rows)).items()}
            return lambda row: ages.get(row.signs.pk)
        case "failures":
            failed = _failures_per_day(_ids(rows), now)
            return lambda row: failed[row.signs.pk].total() if row.signs.pk in failed else 0
        case "objective":
            left = {pk: each.left_percent for pk, each in _budgets(_ids(rows)).items()}
            return lambda row: left.get(row.signs.pk)
    raise ValueError(f"The fleet has no column {field!r}.")


def _matches(row: RankedJob, chosen: Selection, clusters: Clusters) -> bool:
    text, name, cluster = chosen.text.strip().lower(), row.signs.name, clusters[row.signs.cluster_id].name
    return (
        (not text or text in name.lower() or text in cluster.lower())
        and (not chosen.level or row.health.level.word == chosen.level)
        and (not chosen.cluster or cluster == chosen.cluster)
        and chosen.selector is not None
        and (not chosen.labels or chosen.selector.matches(_labels_of(row, clusters)))
    )


def with_budgets(rows: list[JobRow]) -> list[JobRow]:
    """Return the rows with the budgets of objectives, and without the other figures."""
    budgets = _budgets([row.facts.pk for row in rows])
    return [row._replace(figures=Figures(budget=budgets.get(row.facts.pk))) for row in rows]


def with_figures(rows: list[JobRow], now: datetime, *, has_objectives: bool = True) -> list[JobRow]:
    """Return the rows with their figures. Without `has_objectives`, no job has a budget."""
    ids, hour = [row.facts.pk for row in rows], now - timedelta(hours=1)
    recent = {r["job_id"]: r for r in select(_RECENT, [ids, hour, hour, SPARK_POINTS])}
    savepoints, failed, budgets = (
        _newest_savepoints(ids),
        _failures_per_day(ids, now),
        _budgets(ids if has_objectives else []),
    )
    return [
        row._replace(
            figures=_figures(recent.get(pk, {}), failed.get(pk, Counter()), savepoints.get(pk), budgets.get(pk))
        )
        for pk, row in zip(ids, rows, strict=True)
    ]


def _with_objective() -> set[int]:
    return set(ObjectiveBudget.objects.values_list("job_id", flat=True))


def _budgets(ids: list[int]) -> dict[int, ObjectiveBudget]:
    """Return the budgets by job, for jobs with an objective."""
    return {each.job_id: each for each in ObjectiveBudget.objects.filter(job__in=ids)}


def _ids(rows: Iterable[RankedJob]) -> list[int]:
    return [row.signs.pk for row in rows]


def _newest_savepoints(ids: list[int]) -> dict[int, datetime]:
    """Return the time of the newest completed savepoint by job."""
    return {r["job_id"]: r["completed_at"] for r in select(_SAVEPOINTS, [ids, SavepointState.COMPLETED.value])}


def _failures_per_day(ids: list[int], now: datetime) -> dict[int, Counter[int]]:
    """Return the number of failed checkpoints by job and by days ago, for jobs with failures."""
    week = now - timedelta(days=DAYS)
    failed: dict[int, Counter[int]] = {}
    for r in select(_FAILED_PER_DAY, [now, ids, week, week]):
        failed.setdefault(r["job_id"], Counter())[r["days_ago"]] += r["failed"]
    return failed


def _figures(
    recent: dict[str, Any], failed: Counter[int], savepoint_at: datetime | None, budget: ObjectiveBudget | None
) -> Figures:
    return Figures(
        duration_p95=recent.get("duration_p95"),
        alignment_p95=recent.get("alignment_p95"),
        durations=tuple(d for d in recent.get("durations") or () if d is not None),
        failed_per_day=tuple(failed[day] for day in reversed(range(DAYS))),
        savepoint_at=savepoint_at,
        budget=budget,
    )
