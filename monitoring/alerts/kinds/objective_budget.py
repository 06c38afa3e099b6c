"""A rule kind that finds jobs whose checkpoints have used up the budget of their objective."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import Reason, ReasonCode


class ObjectiveBudgetReason(ReasonCode):
    RULE = (
        "alerts.objective-budget-rule",
        _(
            "Opens when {threshold} % of the budget of the job's objective is used up. "
            "A job without an objective is not watched."
        ),
    )
    NONE = "alerts.no-objective", _("{subject} has no objective, or no checkpoints yet.")
    FOUND = (
        "alerts.objective-budget",
        ngettext(
            "{used:.0f} % of the budget of {subject} is used up (threshold {threshold} %): within {days} day, "
            "{missed} of {counted:,} checkpoints failed or took {limit:milliseconds} or longer. "
            "The objective is {percent:g} % below it.",
            "{used:.0f} % of the budget of {subject} is used up (threshold {threshold} %): within {days} days, "
            "{missed} of {counted:,} checkpoints failed or took {limit:milliseconds} or longer. "
            "The objective is {percent:g} % below it.",
            "days",
        ),
    )


class ObjectiveBudgetUsed(Kind):
    """The events of the facts are measurements: `number` is the number of misses, `row` that of all checkpoints."""

    name = "objective_budget"
    title = _("Budget of the objective")
    group = _("Checkpoints")
    source = Source.BUDGETS
    unit = Unit.PERCENT
    threshold = Number(
        _("Threshold"),
        Unit.PERCENT,
        80,
        1,
        1000,
        _("Percent of the failed and slow checkpoints that the objective allows. At 100, it is missed."),
    )
    check_every_s = 300

    def explain(self, terms: Terms) -> Reason:
        return ObjectiveBudgetReason.RULE(threshold=terms.threshold or 0)

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        last = facts.last(at)
        return last.value if last else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last, goal = facts.last(at), facts.goal
        if last is None or goal is None:
            return Finding(ObjectiveBudgetReason.NONE(subject=subject), {"threshold_percent": terms.threshold})
        return Finding(
            ObjectiveBudgetReason.FOUND(
                used=last.value,
                subject=subject,
                threshold=terms.threshold,
                missed=last.number,
                counted=last.row,
                days=goal.days,
                limit=goal.limit_ms,
                percent=goal.percent,
            ),
            {
                "value_percent": round(last.value, 1),
                "threshold_percent": terms.threshold,
                "missed": last.number,
                "counted": last.row,
                "objective_percent": goal.percent,
                "limit_ms": goal.limit_ms,
                "days": goal.days,
            },
        )


def used_percent(counted: int, missed: int, percent: float) -> float | None:
    """Return which share of the allowed misses has happened: above 100, the objective is missed.

    None: there are no checkpoints.
    """
    return round(10_000 * missed / (counted * (100 - percent)), 6) if counted else None


def window(last: date, days: int) -> tuple[date, date]:
    """Return the first and the last day of an objective over `days` days."""
    return last - timedelta(days=days - 1), last


KINDS = (ObjectiveBudgetUsed(),)
