"""Gather how far the budgets of objectives were used up: at the end of each UTC day, and at the newest measurement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, date, timedelta

from monitoring.alerts.gathering.query import FactQuery, Found
from monitoring.alerts.kinds.objective_budget import used_percent, window
from monitoring.alerts.rule_facts import Event, Facts, Goal
from monitoring.alerts.walk import LATE
from monitoring.history.day_counts import DAY, midnight
from monitoring.models import ObjectiveBudget, ObjectiveDay


def gather_budgets(query: FactQuery) -> Found:
    """Return events whose `value` is the used percentage, `number` the missed and `row` all counted checkpoints.

    Days are read only for `query.must`, unless one of them ends within the time range. So most live evaluations read
    one row per job.
    """
    budgets = ObjectiveBudget.objects.in_bulk(list(query.jobs))
    with_days = budgets.keys() if _a_day_ends(query) else budgets.keys() & set(query.must)
    events = _ends_of_days(query, {job: budgets[job] for job in with_days})
    for job, budget in budgets.items():
        # The measurement may be a little newer than the evaluation, which began before it.
        if budget.used_percent is not None and budget.measured_at <= query.until + LATE:
            at = min(budget.measured_at, query.until)
            events[job].append(Event(at, budget.used_percent, budget.missed, budget.counted))
    large = {job for job, found in events.items() if any(event.value >= query.least for event in found)}
    goals = {job: Goal(each.percent, each.limit_ms, each.days) for job, each in budgets.items()}
    return {job: Facts(events=sorted(events[job]), goal=goals.get(job)) for job in {*large, *query.must}}


def _a_day_ends(query: FactQuery) -> bool:
    return query.since.astimezone(UTC).date() < query.until.astimezone(UTC).date()


def _ends_of_days(query: FactQuery, budgets: Mapping[int, ObjectiveBudget]) -> defaultdict[int, list[Event]]:
    """Return the events of the days that end within (since, until], and of the last day before them."""
    events: defaultdict[int, list[Event]] = defaultdict(list)
    if not budgets:
        return events
    first, last = query.since.astimezone(UTC).date() - DAY, query.until.astimezone(UTC).date() - DAY
    longest = max(each.days for each in budgets.values())
    rows = ObjectiveDay.objects.filter(job__in=list(budgets), day__gte=window(first, longest)[0], day__lte=last)
    by_job: dict[int, list[ObjectiveDay]] = defaultdict(list)
    for row in rows:
        by_job[row.job_id].append(row)
    for job, days in by_job.items():
        ends = [first + timedelta(days=number) for number in range((last - first).days + 1)]
        events[job] = [event for end in ends if (event := _event(budgets[job], days, end)) is not None]
    return events


def _event(budget: ObjectiveBudget, days: Collection[ObjectiveDay], end: date) -> Event | None:
    """Return the budget at the end of a day; None without checkpoints."""
    first, last = window(end, budget.days)
    within = [row for row in days if first <= row.day <= last and row.limit_ms == budget.limit_ms]
    counted, missed = sum(row.counted for row in within), sum(row.missed for row in within)
    used = used_percent(counted, missed, budget.percent)
    return None if used is None else Event(midnight(end + DAY), used, missed, counted)
