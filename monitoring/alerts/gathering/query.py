"""The request to a gatherer, and the functions with which gatherers read the database."""

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
# A completed checkpoint took at most its timeout, so that an index on the trigger time finds it within that time.
LONGEST = """
make_interval(secs => coalesce(nullif(r.checkpoint_config ->> 'timeout', '')::float8 / 1000, 3600) + 60)"""


@dataclass(frozen=True)
class FactQuery:
    """A request for facts of `kind` over (since, until] for the jobs, under any of the terms.

    `must`: jobs that are returned in any case, because a rule remembers them or a person requests them.
    """

    kind: Kind
    terms: Sequence[Terms]
    jobs: Sequence[int]
    since: datetime
    until: datetime
    must: Collection[int] = ()
    # Rows that one pass of evaluation reads once for several kinds of rules.
    shared: dict[object, Any] = field(default_factory=dict)

    def once(self, name: str, read: Callable[[], T], *more: object) -> T:
        """Return the result of `read`, which is called only once per pass for the same jobs, time range and `more`."""
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
        """Return the lowest threshold of the rules: below it, none of them opens."""
        return min((terms.threshold or 0 for terms in self.terms), default=0)


Found = dict[int, Facts]
Gatherer = Callable[[FactQuery], Found]


def select(sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {name: _keys_as_text(value) for name, value in parameters.items()})
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _keys_as_text(value: Any) -> Any:
    """Return a list of keys as a PostgreSQL array literal: binding thousands one by one would be slower."""
    if isinstance(value, list) and value and type(value[0]) is int:
        return f"{{{','.join(map(str, value))}}}"
    return value


def by_job(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Event]]:
    """Return rows of (job, at, value, number, row, text) as events by job, oldest first."""
    found: dict[int, list[Event]] = defaultdict(list)
    for job, at, value, number, row, text in rows:
        found[job].append(Event(at, float(value), number, row, text))
    for events in found.values():
        events.sort(key=lambda event: (event.at, event.number))
    return found


def facts_of(query: FactQuery, events: Mapping[int, Sequence[Event]]) -> Found:
    return {job: Facts(events=events.get(job, ())) for job in {*events, *query.must}}
