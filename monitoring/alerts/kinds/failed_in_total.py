"""Failed checkpoints in total, since a date."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import failure_in_words
from monitoring.alerts.kinds.base import Day, Finding, Kind, Number, Source, Terms, Unit, plural
from monitoring.alerts.rule_facts import Facts


class FailedInTotal(Kind):
    name = "failed_in_total"
    title = _("Failed checkpoints in total")
    group = _("Checkpoints")
    source = Source.FAILURES
    threshold = Number(_("Threshold"), Unit.COUNT, 100, 1, 10_000_000, _("Failed checkpoints that open an incident."))
    parameters: ClassVar[Mapping[str, Number | Day]] = {
        "since": Day(_("Since"), _("Counted from the beginning of this day, UTC; empty: from the first one known."))
    }
    check_every_s = 300
    counts = True

    def explain(self, terms: Terms) -> str:
        return (
            f"Opens when {plural(terms.threshold or 0, 'checkpoint')} failed {_since(terms)}, over all runs. "
            "Somebody who resolves the incident starts the count anew."
        )

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return _count(facts, terms, at)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        count, last = _count(facts, terms, at), facts.last(at)
        tail = f": the last, {last.number}, {failure_in_words(last.text)}" if last else ""
        return Finding(
            f"{plural(count, 'checkpoint')} of {subject} failed {_since(terms)} (threshold {terms.threshold}){tail}.",
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


def _since(terms: Terms) -> str:
    return f"since {terms.parameters['since']}" if terms.parameters.get("since") else "in total"


KIND = FailedInTotal()
