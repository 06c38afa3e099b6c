"""What is asked of a gatherer, and how it asks the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import connection

from monitoring.alerts.kinds.base import Kind, Terms
from monitoring.alerts.rule_facts import Event, Facts

T = TypeVar("T")
# A completed checkpoint took no longer than its time-out, so that its trigger is found by index within it.
LONGEST = """
make_interval(secs => coalesce(nullif(r.checkpoint_config ->> 'timeout', '')::float8 / 1000, 3600) + 60)"""


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
    shared: dict[object, Any] = field(default_factory=dict)  # what gatherers of one pass read once for several kinds

    def once(self, name: str, read: Callable[[], T], *more: object) -> T:
        """What `read` finds, for every kind of the pass with the same jobs and stretch (and `more`) read only once."""
        key = (name, self.since, self.until, tuple(self.jobs), *more)
        if key not in self.shared:
            self.shared[key] = read()
        found: T = self.shared[key]
        return found

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
        cursor.execute(sql, {name: _keys_as_text(value) for name, value in parameters.items()})
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _keys_as_text(value: Any) -> Any:
    """A list of keys as PostgreSQL writes it: to bind thousands one by one takes longer than most statements."""
    if isinstance(value, list) and value and type(value[0]) is int:
        return f"{{{','.join(map(str, value))}}}"
    return value


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
