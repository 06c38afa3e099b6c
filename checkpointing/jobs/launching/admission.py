"""Decides which drivers may start on a machine now, in what order, and why the others wait. Pure.

- Jobs are ordered by priority, then by the time of submission. Each unit of priority is worth PRIORITY_IS_WORTH_S of
  waiting. So a job with one unit more can overtake only jobs that began to wait less than that time before it, and
  every job starts eventually.
- No job starts before an earlier one that waits for memory or for a place. Otherwise a large job would never start.
- A job that restarts has kept its memory and its place. It waits only for its turn to start.

Decision 136 has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

PRIORITY_IS_WORTH_S = 300
# Jobs that began to wait within the same minute count as waiting equally long.
_SAME_TIME_S = 60


@dataclass(frozen=True)
class Demand:
    """The memory that one driver uses on its machine, in bytes."""

    memory: int


@dataclass(frozen=True)
class Load:
    """The total memory of drivers in bytes, their number, and how many of them are starting."""

    memory: int = 0
    drivers: int = 0
    starting: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.memory + other.memory, self.drivers + other.drivers, self.starting + other.starting)


@dataclass(frozen=True)
class Limits:
    """The limits for all drivers of one machine together. None means no limit."""

    memory: int | None
    drivers: int | None
    starting: int


class Lacking(Enum):
    """The reason why a job waits.

    MACHINE: the job needs more memory than all drivers together may use here. TURN: another job waits before it for
    memory or for a place. RECOVERY: jobs of the last leader are still being recovered, and one of them has a higher
    priority.
    ENVIRONMENT: its Python environment is being prepared; it enters the queue afterwards.
    """

    MEMORY = "memory"
    DRIVERS = "drivers"
    STARTS = "starts"
    TURN = "turn"
    MACHINE = "machine"
    RECOVERY = "recovery"
    ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Waiting:
    """A job that wants to start its driver. `since_s` is monotonic; `has_place`: its memory is already counted."""

    job_id: str
    demand: Demand
    priority: int
    submitted_ms: int
    since_s: float
    has_place: bool = False

    @property
    def rank(self) -> tuple[float, int, str]:
        """Return the sort key. The least is the first."""
        waits_from = self.since_s // _SAME_TIME_S * _SAME_TIME_S - self.priority * PRIORITY_IS_WORTH_S
        return waits_from, self.submitted_ms, self.job_id

    @property
    def load(self) -> Load:
        """Return the load that the start adds."""
        return Load(starting=1) if self.has_place else Load(self.demand.memory, 1, 1)


@dataclass(frozen=True)
class LaunchWait:
    """Why a job waits. `asked` is in bytes. `limit` and `free` are in bytes for MEMORY and MACHINE, else counts.

    `position` counts from 1 among `length` waiting jobs.
    """

    lacking: Lacking
    position: int
    length: int
    asked: int
    free: int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Decision:
    """A decision which jobs start. `admitted` has job IDs in the order of their starts, `waits` all other jobs."""

    admitted: tuple[str, ...]
    waits: Mapping[str, LaunchWait]


def decide(
    waiting: Iterable[Waiting], load: Load, limits: Limits, *, least_priority: float = float("-inf")
) -> Decision:
    """Return which jobs start now. `load` is the load of all drivers that run or start; it may exceed the limits.

    `least_priority`: a job with a lower priority waits for the recovery of other jobs.
    """
    admitted, kept, queue_is_blocked = [], [], False
    for each in sorted(waiting, key=lambda one: one.rank):
        lacking = _missing_resource(each, load, limits, least_priority, queue_is_blocked)
        if lacking is None:
            admitted.append(each.job_id)
            load += each.load
        else:
            kept.append((each, lacking))
            # A job that can never start here, or whose turn has not come, blocks no other job.
            queue_is_blocked |= lacking in (Lacking.MEMORY, Lacking.DRIVERS)
    waits = {
        each.job_id: _wait(each, lacking, position, len(kept), load, limits)
        for position, (each, lacking) in enumerate(kept, 1)
    }
    return Decision(tuple(admitted), waits)


def _missing_resource(
    each: Waiting, load: Load, limits: Limits, least_priority: float, queue_is_blocked: bool
) -> Lacking | None:
    if not each.has_place and limits.memory is not None and each.demand.memory > limits.memory:
        return Lacking.MACHINE
    if each.priority < least_priority:
        return Lacking.RECOVERY
    if not each.has_place:
        if queue_is_blocked:
            return Lacking.TURN
        if limits.memory is not None and load.memory + each.demand.memory > limits.memory:
            return Lacking.MEMORY
        if limits.drivers is not None and load.drivers >= limits.drivers:
            return Lacking.DRIVERS
    return Lacking.STARTS if load.starting >= limits.starting else None


def _wait(each: Waiting, lacking: Lacking, position: int, length: int, load: Load, limits: Limits) -> LaunchWait:
    free, limit = {
        Lacking.MEMORY: (_left(limits.memory, load.memory), limits.memory),
        Lacking.MACHINE: (_left(limits.memory, load.memory), limits.memory),
        Lacking.DRIVERS: (_left(limits.drivers, load.drivers), limits.drivers),
        Lacking.STARTS: (_left(limits.starting, load.starting), limits.starting),
    }.get(lacking, (None, None))
    return LaunchWait(lacking, position, length, each.demand.memory, free, limit)


def _left(limit: int | None, taken: int) -> int | None:
    return None if limit is None else max(0, limit - taken)


def room_for_spares(waiting: Iterable[Waiting], load: Load, limits: Limits) -> Load:
    """Return the load that is left for spare drivers after all waiting jobs have started.

    `load` excludes spare drivers.
    """
    can_start = (each for each in waiting if limits.memory is None or each.demand.memory <= limits.memory)
    wanted = sum((each.load for each in can_start), load)
    return Load(
        memory=_UNLIMITED if limits.memory is None else max(0, limits.memory - wanted.memory),
        drivers=_UNLIMITED if limits.drivers is None else max(0, limits.drivers - wanted.drivers),
    )


_UNLIMITED = 2**62
