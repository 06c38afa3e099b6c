"""What a rule is evaluated on: stored rows of one subject, and nothing else. Pure data, oldest first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import NamedTuple


class Event(NamedTuple):
    """One stored row that can change a rule's mind, at its own time; `number` is what people call it by."""

    at: datetime
    value: float
    number: int
    row: int
    text: str = ""


class RunFact(NamedTuple):
    """One life of the job.

    `interval_ms`: None without periodic checkpoints, or where it is not known. `failed`: FAILED or LOST. `lost`: LOST,
    the engine does not know the job any more and so never reported a `cause`.
    """

    number: int
    started_at: datetime
    ended_at: datetime | None
    failed: bool
    interval_ms: int | None = None
    timeout_ms: int | None = None
    tolerable: int = 0
    cause: str = ""
    lost: bool = False

    def lives_at(self, at: datetime) -> bool:
        return self.started_at <= at and (self.ended_at is None or at < self.ended_at)


class Interval(NamedTuple):
    """From `began` until before `ended`; None: it lasts."""

    began: datetime
    ended: datetime | None

    def covers(self, at: datetime) -> bool:
        return self.began <= at and (self.ended is None or at < self.ended)


@dataclass(frozen=True, slots=True)
class Facts:
    """`outages`: times in which nothing was learned. `baseline`: the job's own p95 by the UTC day that it holds for.
    `by_hour`: by the UTC day that they hold for the 24 of the same hours of the week; None: too few weeks tell it."""

    events: Sequence[Event] = ()
    runs: Sequence[RunFact] = ()
    outages: Sequence[Interval] = ()
    baseline: Mapping[date, float] = field(default_factory=dict)
    first_seen_at: datetime | None = None
    by_hour: Mapping[date, Sequence[float | None]] = field(default_factory=dict)

    def index(self, at: datetime) -> int:
        """How many events there were up to `at`, that moment included."""
        return bisect_right(self.events, at, key=lambda event: event.at)

    def last(self, at: datetime) -> Event | None:
        index = self.index(at)
        return self.events[index - 1] if index else None

    def within(self, after: datetime, until: datetime) -> Sequence[Event]:
        """The events in (after, until]."""
        return self.events[self.index(after) : self.index(until)]

    def run(self, at: datetime) -> RunFact | None:
        """The newest run that had begun by then."""
        return next((run for run in reversed(self.runs) if run.started_at <= at), None)

    def after(self, moment: datetime | None) -> Facts:
        """Without the events up to `moment`: a person dealt with them."""
        if moment is None:
            return self
        return replace(self, events=self.events[self.index(moment) :])
