"""Decide which savepoints of a job are kept, and why the others may be deleted. Pure functions.

Retention deletes only automatic savepoints (scheduled, before a restart, at the end of a run), never those of a person
or another tool. Final savepoints are counted separately. Regardless of the policy, these stay: pinned savepoints, those
of the Flink operator, the newest good one, and those that a job needs (needed.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from monitoring.models import SavepointOrigin
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason

OURS = (SavepointOrigin.SCHEDULED, SavepointOrigin.RESTART)


@dataclass(frozen=True)
class Policy:
    """A job's retention: which savepoints Waymark keeps.

    A savepoint is deleted if it is neither among the `count` newest of Waymark nor younger than `age`; None: this
    criterion is not used. Without both, nothing is deleted. `final`: how many final savepoints stay.
    """

    count: int | None = None
    age: timedelta | None = None
    final: int | None = None

    def of(self, origin: SavepointOrigin) -> Policy:
        """Return the part of the policy for savepoints of this origin."""
        return Policy(self.final) if origin is SavepointOrigin.FINAL else Policy(self.count, self.age)

    @property
    def reason(self) -> Reason:
        """Return what the policy keeps, as a part of the reason for a deletion."""
        match self.count, self.age:
            case None, None:
                return SavepointReason.KEEPS_ALL()
            case count, None:
                return SavepointReason.KEEPS_NEWEST(count=count)
            case None, age:
                return SavepointReason.KEEPS_YOUNG(age=age)
            case count, age:
                return SavepointReason.KEEPS_NEWEST_AND_YOUNG(count=count, age=age)


@dataclass(frozen=True)
class RetainedSavepoint:
    """A completed savepoint. `good`: no problem is known that prevents a restore. `needed`: why a job needs it."""

    key: int
    taken_at: datetime
    origin: SavepointOrigin
    good: bool = True
    pinned: bool = False
    needed: Reason | None = field(default=None, hash=False)  # excluded from the hash, because a Reason is not hashable


@dataclass(frozen=True)
class Verdict:
    held: RetainedSavepoint
    is_expired: bool
    why: Reason


def judge(savepoints: Iterable[RetainedSavepoint], policy: Policy, now: datetime) -> list[Verdict]:
    """Return one verdict per savepoint, newest first."""
    newest_first = sorted(savepoints, key=_age, reverse=True)
    last_good = newest_good(newest_first)
    places = {**_places(newest_first, OURS), **_places(newest_first, (SavepointOrigin.FINAL,))}
    return [_judge(held, places.get(held), last_good, policy.of(held.origin), now) for held in newest_first]


def _places(
    newest_first: Sequence[RetainedSavepoint], origins: Collection[SavepointOrigin]
) -> dict[RetainedSavepoint, int]:
    return {held: place for place, held in enumerate((h for h in newest_first if h.origin in origins), start=1)}


def newest_good(savepoints: Iterable[RetainedSavepoint]) -> RetainedSavepoint | None:
    return max((held for held in savepoints if held.good), key=_age, default=None)


def outlasted(verdicts: Sequence[Verdict]) -> list[RetainedSavepoint]:
    """Return the savepoints to delete, oldest first."""
    return [verdict.held for verdict in reversed(verdicts) if verdict.is_expired]


def _age(held: RetainedSavepoint) -> tuple[datetime, int]:
    return held.taken_at, held.key


def _judge(
    held: RetainedSavepoint, place: int | None, last_good: RetainedSavepoint | None, policy: Policy, now: datetime
) -> Verdict:
    kept = protected(held, last_good) or _kept_by_policy(held, place, policy, now)
    if kept:
        return Verdict(held, is_expired=False, why=kept)
    why = SavepointReason.OUTLASTED(place=place, age=now - held.taken_at, policy=policy.reason)
    return Verdict(held, is_expired=True, why=why)


def protected(held: RetainedSavepoint, last_good: RetainedSavepoint | None) -> Reason | None:
    """Return why the savepoint must stay regardless of the policy, or None."""
    if held.pinned:
        return SavepointReason.PINNED()
    if held.origin is SavepointOrigin.OPERATOR:
        return SavepointReason.OF_OPERATOR()
    if held.needed:
        return held.needed
    return SavepointReason.NEWEST_GOOD() if held == last_good else None


def _kept_by_policy(held: RetainedSavepoint, place: int | None, policy: Policy, now: datetime) -> Reason | None:
    if place is None:
        return SavepointReason.NOT_OURS()
    if policy.count is None and policy.age is None:
        return SavepointReason.JOB_KEEPS_ALL()
    if policy.count is not None and place <= policy.count:
        return SavepointReason.AMONG_NEWEST(count=policy.count)
    if policy.age is not None and now - held.taken_at < policy.age:
        return SavepointReason.YOUNGER(age=policy.age)
    return None
