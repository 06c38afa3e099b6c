"""The facts on which a rule is evaluated: stored rows of one subject as pure data, oldest first."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import NamedTuple


class Event(NamedTuple):
    """A stored row that can change a rule's result, with its own time. `number` is the ID that people see."""

    at: datetime
    value: float
    number: int
    row: int
    text: str = ""


class RunFact(NamedTuple):
    """One run of the job.

    `interval_ms` is None without periodic checkpoints, or if it is not known. `failed`: FAILED or LOST. `lost`: LOST,
    so that the engine never reported a `cause`.
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

    def is_live_at(self, at: datetime) -> bool:
        return self.started_at <= at and (self.ended_at is None or at < self.ended_at)


class Interval(NamedTuple):
    """A time range from `began` to just before `ended`, which is None if the range has not ended."""

    began: datetime
    ended: datetime | None

    def covers(self, at: datetime) -> bool:
        return self.began <= at and (self.ended is None or at < self.ended)


class Goal(NamedTuple):
    """The objective of a job: `percent` of its checkpoints of `days` UTC days complete in less than `limit_ms`."""

    percent: float
    limit_ms: int
    days: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one subject.

    `outages`: times without information. `baseline`: the job's own p95 by the UTC day for which it is valid. `by_hour`:
    for each UTC day, the p95 of each of its 24 hours over the weeks before; None: too few weeks have data. `goal`: the
    job's objective.
    """

    events: Sequence[Event] = ()
    runs: Sequence[RunFact] = ()
    outages: Sequence[Interval] = ()
    baseline: Mapping[date, float] = field(default_factory=dict)
    first_seen_at: datetime | None = None
    by_hour: Mapping[date, Sequence[float | None]] = field(default_factory=dict)
    goal: Goal | None = None

    def index(self, at: datetime) -> int:
        """Return the number of events up to and including `at`."""
        return bisect_right(self.events, at, key=lambda event: event.at)

    def last(self, at: datetime) -> Event | None:
        index = self.index(at)
        return self.events[index - 1] if index else None

    def within(self, after: datetime, until: datetime) -> Sequence[Event]:
        """Return the events in (after, until]."""
        return self.events[self.index(after) : self.index(until)]

    def run(self, at: datetime) -> RunFact | None:
        """Return the newest run that had started by `at`."""
        return next((run for run in reversed(self.runs) if run.started_at <= at), None)

    def after(self, moment: datetime | None) -> Facts:
        """Return the facts without the events up to `moment`, when a person resolved the incident."""
        if moment is None:
            return self
        return replace(self, events=self.events[self.index(moment) :])
