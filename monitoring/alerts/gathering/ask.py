"""What is asked of a gatherer, and how it asks the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from monitoring.alerts.facts import Event, Facts
from monitoring.alerts.kinds.base import Kind, Terms


@dataclass(frozen=True)
class Ask:
    """Facts of `kind` over (since, until] for the jobs, under any of the terms; `must`: jobs that are walked in any
    case (a rule remembers something of them, or a person asks)."""

    kind: Kind
    terms: Sequence[Terms]
    jobs: Sequence[int]
    since: datetime
    until: datetime
    must: Collection[int] = ()

    @property
    def counted_from(self) -> datetime:
        return self.since - max((self.kind.lookback(terms) for terms in self.terms), default=timedelta())

    @property
    def least(self) -> int:
        """No rule opens below it."""
        return min((terms.threshold or 0 for terms in self.terms), default=0)


Found = dict[int, Facts]
Gatherer = Callable[[Ask], Found]


def select(sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def by_job(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Event]]:
    """Rows of (job, at, value, number, row, text), oldest first within each job."""
    found: dict[int, list[Event]] = defaultdict(list)
    for job, at, value, number, row, text in rows:
        found[job].append(Event(at, float(value), number, row, text))
    for events in found.values():
        events.sort(key=lambda event: (event.at, event.number))
    return found


def facts_of(ask: Ask, events: Mapping[int, Sequence[Event]]) -> Found:
    return {job: Facts(events=events.get(job, ())) for job in {*events, *ask.must}}
