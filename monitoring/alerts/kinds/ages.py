"""Kinds that find something missing, such as a checkpoint: their value is the time since the last one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import datetime, timedelta

from monitoring.alerts.kinds.base import Kind, Terms, Unit
from monitoring.alerts.rule_facts import Facts, RunFact


class Age(Kind):
    """A kind whose value is the number of seconds since `begin`."""

    unit = Unit.SECONDS
    by_absence = True

    @abstractmethod
    def begin(self, facts: Facts, terms: Terms, at: datetime) -> datetime | None:
        """Return the time from which the age counts, or None if nothing is expected at `at`."""

    def limit_without_run(self, terms: Terms) -> float | None:
        """Return the limit, or None if it depends on the job."""
        return terms.threshold

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        """Yield each event and each start and end of a run, which may reset the age, and when it reaches the limit."""
        resets = {since, *(event.at for event in facts.within(since, until))}
        resets |= {run.started_at for run in facts.runs if since < run.started_at <= until}
        resets |= {run.ended_at for run in facts.runs if run.ended_at and since < run.ended_at <= until}
        for at in resets:
            yield at
            begin, limit = self.begin(facts, terms, at), self.limit(facts, terms, at)
            if begin is not None and limit is not None:
                yield begin + timedelta(seconds=limit)

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        begin = self.begin(facts, terms, at)
        return None if begin is None else (at - begin).total_seconds()


def live_run(facts: Facts, at: datetime) -> RunFact | None:
    run = facts.run(at)
    return run if run and run.is_live_at(at) else None
