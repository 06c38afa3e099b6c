"""Who may have missed something for too long: judged from two moments a job, before any row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, cast

from monitoring.alerts.facts import RunFact
from monitoring.alerts.gathering.ask import Ask
from monitoring.alerts.kinds.ages import Age


class Marks(NamedTuple):
    """Of a job: its last event up to the stretch's beginning, and the first one within the stretch."""

    last: datetime | None
    first: datetime | None


def suspects(
    ask: Ask, marks: Mapping[int, Marks], runs: Mapping[int, Sequence[RunFact]], first_seen: Mapping[int, datetime]
) -> set[int]:
    """Those whose age may reach a limit up to the first event of the stretch; see `is_short` for what comes after."""
    found = set(ask.must)
    for job in ask.jobs:
        lives = runs.get(job)
        limit = _limit(ask, lives[-1]) if lives else None
        if lives is None or limit is None:
            continue
        last, first = marks.get(job) or (None, None)
        begin = last or min(first_seen.get(job) or ask.until, lives[-1].started_at)
        if (first or ask.until) - begin >= timedelta(seconds=limit):
            found.add(job)
    return found


def is_short(ask: Ask, runs: Mapping[int, Sequence[RunFact]]) -> bool:
    """Whether an age may reach a limit between two events of the stretch."""
    limits = [limit for lives in runs.values() if (limit := _limit(ask, lives[-1])) is not None]
    return bool(limits) and timedelta(seconds=min(limits)) <= ask.until - ask.since


def least_limit(ask: Ask, runs: Mapping[int, Sequence[RunFact]]) -> timedelta:
    limits = (limit for lives in runs.values() if (limit := _limit(ask, lives[-1])) is not None)
    return timedelta(seconds=min(limits, default=0))


def _limit(ask: Ask, run: RunFact) -> float | None:
    limits = (cast("Age", ask.kind).shortest(run, terms, ask.since) for terms in ask.terms)
    return min((limit for limit in limits if limit is not None), default=None)
