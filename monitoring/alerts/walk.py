"""Compute a rule's openings and closings from facts, for live evaluation and backtests. No I/O and no clock.

The walk evaluates the rule at every moment at which a row could have changed the result, not only at the time of the
evaluation. So the later of two evaluations finds a problem between them at its own time. Walking a time range at once
or in parts gives the same openings and closings. More frequent evaluations only find them earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from monitoring.alerts.kinds.base import Kind, Terms
from monitoring.alerts.rule_facts import Facts
from monitoring.models.rules import RulePhase

# A row may be stored this long after its own time (one poll of the engine, and its transaction).
LATE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Holds:
    """How long a problem must last to open an incident, and how long it must be gone to close the incident.

    From the `flap_opens`-th opening within `flap_window` on, an incident is flapping: it closes after `flap_window`
    without a problem. If `flap_opens` is 0, no incident is flapping.
    """

    open: timedelta = timedelta()
    close: timedelta = timedelta()
    flap_opens: int = 0
    flap_window: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class State:
    """A rule's memory of a subject between two walks. `since`: when the phase began; None: nothing is remembered."""

    phase: RulePhase = RulePhase.QUIET
    since: datetime | None = None
    opened_at: datetime | None = None
    flapping: bool = False
    opens: tuple[datetime, ...] = ()
    counts_since: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.phase in (RulePhase.OPEN, RulePhase.CLOSING)


class Move(Enum):
    OPENED = "opened"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Transition:
    """An opening or closing. `at`: its own time, holds included. `seen_at`: the time of the facts that caused it."""

    move: Move
    at: datetime
    seen_at: datetime
    flapping: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """A rule in the form that the walk uses: kind, terms and holds."""

    kind: Kind
    terms: Terms
    holds: Holds = Holds()

    def is_met(self, facts: Facts, at: datetime) -> bool:
        value = self.kind.value(facts, self.terms, at)
        if value is None:
            return False
        limit = self.kind.limit(facts, self.terms, at)
        return limit is not None and value >= limit


def advance(
    watch: Watch, facts: Facts, state: State, since: datetime | None, until: datetime
) -> tuple[State, list[Transition]]:
    """Walk (since, until] from `state`. If `since` is None (a new rule), evaluate only the moment `until`."""
    if watch.kind.counts:
        facts = facts.after(state.counts_since)
    transitions: list[Transition] = []
    for at in _moments(watch, facts, state, since, until):
        is_met = watch.is_met(facts, at)
        while (due := _due(watch, facts, state)) is not None and due < at:
            state = _end_hold(watch.holds, state, due, transitions)
        state = _see(state, is_met, at)
        if (due := _due(watch, facts, state)) is not None and due <= at:
            state = _end_hold(watch.holds, state, due, transitions)
    return _forget(watch.holds, state, until), transitions


def _moments(watch: Watch, facts: Facts, state: State, since: datetime | None, until: datetime) -> Iterator[datetime]:
    """Yield, in order, the moments at which a row could have changed the result; `until` is the last of them.

    Kinds that find something missing skip moments within an outage.
    """
    moments = {until}
    if since is not None:
        floor = max(since, state.since) if state.since else since
        moments |= {at for at in watch.kind.moments(facts, watch.terms, since, until) if floor < at < until}
        if watch.kind.by_absence:
            moments |= {o.ended for o in facts.outages if o.ended is not None and floor < o.ended < until}
    silent = facts.outages if watch.kind.by_absence else ()
    yield from sorted(at for at in moments if not any(outage.covers(at) for outage in silent))


def _due(watch: Watch, facts: Facts, state: State) -> datetime | None:
    """Return when the hold ends. If the kind finds something missing and the hold ends in an outage, return its end."""
    match state.phase:
        case RulePhase.PENDING:
            hold = watch.holds.open
        case RulePhase.CLOSING:
            hold = _close_hold(watch.holds, state)
        case _:
            return None
    due = state.since + hold if state.since else None
    if due is None or not watch.kind.by_absence:
        return due
    outage = next((each for each in facts.outages if each.covers(due)), None)
    return outage.ended if outage else due


def _close_hold(holds: Holds, state: State) -> timedelta:
    return max(holds.close, holds.flap_window) if state.flapping else holds.close


def _end_hold(holds: Holds, state: State, at: datetime, transitions: list[Transition]) -> State:
    seen_at = state.since or at
    if state.phase is RulePhase.PENDING:
        opens = (*_recent(holds, state.opens, at), at)
        flapping = 0 < holds.flap_opens <= len(opens)
        transitions.append(Transition(Move.OPENED, at, seen_at, flapping))
        return replace(state, phase=RulePhase.OPEN, since=at, opened_at=at, flapping=flapping, opens=opens)
    transitions.append(Transition(Move.CLOSED, at, seen_at, state.flapping))
    return replace(state, phase=RulePhase.QUIET, since=at, opened_at=None, flapping=False)


def _see(state: State, is_met: bool, at: datetime) -> State:
    match state.phase, is_met:
        case RulePhase.QUIET, True:
            return replace(state, phase=RulePhase.PENDING, since=at)
        case ((RulePhase.PENDING | RulePhase.DISMISSED), False):
            return replace(state, phase=RulePhase.QUIET, since=at)
        case RulePhase.OPEN, False:
            return replace(state, phase=RulePhase.CLOSING, since=at)
        case RulePhase.CLOSING, True:
            return replace(state, phase=RulePhase.OPEN, since=at)
        case _:
            return state


def _recent(holds: Holds, opens: tuple[datetime, ...], at: datetime) -> tuple[datetime, ...]:
    return tuple(moment for moment in opens if moment > at - holds.flap_window)


def _forget(holds: Holds, state: State, until: datetime) -> State:
    """Forget a quiet subject, unless late rows could repeat its last decision or its openings may make it flap."""
    if state.phase is not RulePhase.QUIET:
        return state
    opens = _recent(holds, state.opens, until) if holds.flap_opens else ()
    since = state.since if state.since and (opens or state.since > until - LATE) else None
    return State(since=since, opens=opens, counts_since=state.counts_since)
