"""Measure how far jobs have used up the budgets of their objectives.

The budget of "99 % in less than 30 s over 30 days" is 1 % of the checkpoints of today and the 29 UTC days before it.
Each day is counted once and stored. Today and yesterday are counted at every measurement, because checkpoints of
yesterday may complete today.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from monitoring.alerts.gathering.ordered import without_ordered_aborts
from monitoring.alerts.gathering.query import select
from monitoring.alerts.kinds.objective_budget import used_percent, window
from monitoring.alerts.scope import WatchedJob, watched_jobs
from monitoring.alerts.selector import parse_stored
from monitoring.history.day_counts import PIECES, DayCount, JobDay, count_days, parameters_of
from monitoring.models import Objective, ObjectiveBudget, ObjectiveDay

MEASURED_EVERY = timedelta(minutes=5)
AT_ONCE = 200  # jobs that are measured together
DAYS_KEPT = timedelta(days=200)  # a backtest of 30 days reads up to 120 days

# The failed checkpoints of some days, with the columns that `without_ordered_aborts` expects.
_FAILED = f"""
SELECT r.job_id, coalesce(c.failed_at, c.triggered_at), 1, p.day, c.id, left(c.failure_message, 300), c.run_id
{PIECES} WHERE c.status = 'FAILED'
"""


@dataclass(frozen=True)
class _Counted:
    counted: int
    missed: int


def objectives_of(jobs: Iterable[WatchedJob]) -> dict[int, Objective]:
    """Return the objective of each job that has one: its own, or that of its labels, or that of all jobs."""
    objectives = list(Objective.objects.all())
    own = {each.job_id: each for each in objectives if each.job_id is not None}
    wide = sorted(
        (each for each in objectives if each.job_id is None), key=lambda each: (not each.selector, each.selector)
    )
    chosen = [(each, selector) for each in wide if (selector := parse_stored(each.selector)) is not None]
    found: dict[int, Objective] = {}
    for job in jobs:
        mine = own.get(job.pk) or next((each for each, selector in chosen if selector.matches(job.labels)), None)
        if mine is not None:
            found[job.pk] = mine
    return found


def measure_due(now: datetime) -> int:
    """Measure each budget that was not measured recently, and return their number.

    Budgets of jobs without an objective are deleted.
    """
    found = objectives_of(watched_jobs()) if Objective.objects.exists() else {}
    budgets = ObjectiveBudget.objects.in_bulk()
    gone = [job for job in budgets if job not in found]
    ObjectiveBudget.objects.filter(job__in=gone).delete()
    ObjectiveDay.objects.filter(day__lt=now.astimezone(UTC).date() - DAYS_KEPT).delete()
    due = sorted(job for job, objective in found.items() if _is_due(budgets.get(job), objective, now))
    for first in range(0, len(due), AT_ONCE):
        measure({job: found[job] for job in due[first : first + AT_ONCE]}, now)
    return len(due)


def _is_due(budget: ObjectiveBudget | None, objective: Objective, now: datetime) -> bool:
    if budget is None or budget.measured_at <= now - MEASURED_EVERY:
        return True
    return any(getattr(budget, name) != getattr(objective, name) for name in ("percent", "limit_ms", "days"))


def measure(objectives: Mapping[int, Objective], now: datetime) -> None:
    """Count the checkpoints of the jobs, and store their days and budgets. To do it twice changes nothing."""
    today = now.astimezone(UTC).date()
    days = _days(objectives, today)
    budgets = []
    for job, each in objectives.items():
        first, last = window(today, each.days)
        within = [count for day, count in days[job].items() if first <= day <= last]
        counted, missed = sum(count.counted for count in within), sum(count.missed for count in within)
        used = used_percent(counted, missed, each.percent)
        budgets.append(
            ObjectiveBudget(
                job_id=job,
                percent=each.percent,
                limit_ms=each.limit_ms,
                days=each.days,
                counted=counted,
                missed=missed,
                used_percent=used,
                measured_at=now,
            )
        )
    columns = ["percent", "limit_ms", "days", "counted", "missed", "used_percent", "measured_at"]
    ObjectiveBudget.objects.bulk_create(budgets, update_conflicts=True, unique_fields=["job"], update_fields=columns)


def _days(objectives: Mapping[int, Objective], today: date) -> dict[int, dict[date, _Counted]]:
    """Return the counts of the days of each objective, and store those that were counted now."""
    longest = max(each.days for each in objectives.values())
    stored = ObjectiveDay.objects.filter(job__in=list(objectives), day__gte=window(today, longest)[0])
    found: dict[int, dict[date, _Counted]] = defaultdict(dict)
    for row in stored.filter(day__lt=today - timedelta(days=1)):
        if row.limit_ms == objectives[row.job_id].limit_ms:
            found[row.job_id][row.day] = _Counted(row.counted, row.missed)
    requested = [
        JobDay(job, day, each.limit_ms)
        for job, each in objectives.items()
        for day in (today - timedelta(days=back) for back in range(each.days))
        if day not in found[job]
    ]
    rows = []
    for each, count in _count(requested, today).items():
        found[each.job][each.day] = count
        rows.append(
            ObjectiveDay(
                job_id=each.job, day=each.day, limit_ms=each.limit_ms, counted=count.counted, missed=count.missed
            )
        )
    ObjectiveDay.objects.bulk_create(
        rows,
        batch_size=5000,
        update_conflicts=True,
        unique_fields=["job", "day"],
        update_fields=["limit_ms", "counted", "missed"],
    )
    return found


def _count(requested: Sequence[JobDay], today: date) -> dict[JobDay, _Counted]:
    counts = count_days(requested, today)
    ordered = _ordered_aborts([each for each, count in counts.items() if count.failed])
    return {each: _without(count, ordered[each.job, each.day]) for each, count in counts.items()}


def _without(count: DayCount, ordered: int) -> _Counted:
    """Return the day without checkpoints that were aborted because a person or Waymark ordered it."""
    failed = max(0, count.failed - ordered)
    return _Counted(count.completed + failed, count.long + failed)


def _ordered_aborts(requested: Collection[JobDay]) -> Counter[tuple[int, date]]:
    if not requested:
        return Counter()
    rows = select(_FAILED, parameters_of(requested))
    failed = Counter((row[0], row[3].astimezone(UTC).date()) for row in rows)
    return failed - Counter((row[0], row[3].astimezone(UTC).date()) for row in without_ordered_aborts(rows))
