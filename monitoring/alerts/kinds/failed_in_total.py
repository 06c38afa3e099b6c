"""A rule kind that counts all failed checkpoints of a job since a date."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import checkpoint_failure
from monitoring.alerts.kinds.base import Day, Finding, Kind, Number, Source, Terms, Unit, checkpoints
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode


class FailedInTotalReason(ReasonCode):
    RULE = (
        "alerts.failed-in-total-rule",
        _("Opens when {checkpoints} failed {since}, over all runs. Resolving the incident restarts the count."),
    )
    SINCE = "alerts.since-day", _("since {day}")
    IN_TOTAL = "alerts.in-total", _("in total")
    NONE = "alerts.none-failed-in-total", _("{checkpoints} of {subject} failed {since} (threshold {threshold}).")
    FOUND = (
        "alerts.failed-in-total",
        _("{checkpoints} of {subject} failed {since} (threshold {threshold}): the last, {checkpoint}, {failure}."),
    )


class FailedInTotal(Kind):
    name = "failed_in_total"
    title = _("Failed checkpoints in total")
    group = _("Checkpoints")
    source = Source.FAILURES
    threshold = Number(
        _("Threshold"),
        Unit.COUNT,
        100,
        1,
        10_000_000,
        _(
            "Failed checkpoints that open an incident. "
            "Checkpoints that a requested stop or restart aborted do not count."
        ),
    )
    parameters: ClassVar[Mapping[str, Number | Day]] = {
        "since": Day(_("Since"), _("Counts from the start of this UTC day. Empty: from the first known checkpoint."))
    }
    check_every_s = 300
    counts = True

    def explain(self, terms: Terms) -> Reason:
        return FailedInTotalReason.RULE(checkpoints=checkpoints(terms.threshold or 0), since=_since(terms))

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return _count(facts, terms, at)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        count, last = _count(facts, terms, at), facts.last(at)
        said = {
            "checkpoints": checkpoints(count),
            "subject": subject,
            "since": _since(terms),
            "threshold": terms.threshold,
        }
        if last:
            said |= {"checkpoint": last.number, "failure": checkpoint_failure(last.text)}
        return Finding(
            FailedInTotalReason.FOUND(**said) if last else FailedInTotalReason.NONE(**said),
            {
                "count": count,
                "threshold": terms.threshold,
                "since": terms.parameters["since"],
                "last_row": last and last.row,
            },
        )


def first_moment(terms: Terms) -> datetime | None:
    day = terms.parameters.get("since")
    return datetime.combine(date.fromisoformat(day), time(), UTC) if day else None


def _count(facts: Facts, terms: Terms, at: datetime) -> int:
    first = first_moment(terms)
    earlier = bisect_left(facts.events, first, key=lambda event: event.at) if first else 0
    return max(0, facts.index(at) - earlier)


def _since(terms: Terms) -> Reason:
    day = terms.parameters.get("since")
    return FailedInTotalReason.SINCE(day=day) if day else FailedInTotalReason.IN_TOTAL()


KINDS = (FailedInTotal(),)
