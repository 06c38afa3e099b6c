"""The queue for drivers on this machine: which one may start next, and which ones run. Used on the event loop.

A job has a place (its memory, and one driver) from its first start to its end here, over all restarts. A start lasts
until the driver's queries run, the attempt has ended, or `start_limit_s` is over. So a program that waits for something
delays no other job. A driver that the last leader started gets a place at once, even beyond the limits. Jobs whose
drivers run elsewhere never wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from checkpointing.clock import Clock
from checkpointing.jobs.launcher import DriverLauncher
from checkpointing.jobs.launching.admission import (
    Demand,
    LaunchWait,
    Limits,
    Load,
    Waiting,
    decide,
    room_for_spares,
)
from checkpointing.jobs.launching.demand import HEAP, MEMORY, gib
from checkpointing.jobs.launching.session_settings import DRIVER_MEMORY
from checkpointing.jobs.loop import Cancellable, Timer
from checkpointing.model.configuration import InvalidConfiguration, whole_number
from checkpointing.model.job_graph import JobGraph

logger = logging.getLogger(__name__)

PRIORITY = "waymark.priority"
_MOST = 1000
# Seconds until the queue notices that a start took too long or that spare drivers have ended.
_LOOK_S = 1.0


def priority_of(configuration: Mapping[str, str]) -> int:
    """Return the job's priority. Raise InvalidConfiguration if it is not a whole number within the limits."""
    text = configuration.get(PRIORITY, "0")
    priority = whole_number(PRIORITY, text, least=-_MOST)
    if priority > _MOST:
        raise InvalidConfiguration(PRIORITY, text, f"at most {_MOST}")
    return priority


@dataclass(frozen=True)
class _Place:
    """A job's place on this machine.

    `starts_until`: the driver counts as starting until then. None: it runs, or waits for its next attempt.
    """

    demand: Demand
    starts_until: float | None = None

    def load(self, now: float) -> Load:
        is_starting = self.starts_until is not None and now < self.starts_until
        return Load(self.demand.memory, 1, 1 if is_starting else 0)


@dataclass(frozen=True)
class _Entry:
    waiting: Waiting
    since_ms: int
    turn: asyncio.Future[None]


@dataclass(frozen=True)
class _ExpectedJob:
    priority: int
    until_s: float


class LaunchQueue:
    """Decides which drivers start. `start_limit_s`: the longest time that a driver counts as starting.

    `recovery_limit_s`: the longest time that jobs wait for the recovery of jobs with a higher priority.
    """

    def __init__(
        self,
        limits: Limits,
        launcher: DriverLauncher,
        clock: Clock,
        timer: Timer,
        *,
        start_limit_s: float,
        recovery_limit_s: float,
    ) -> None:
        self.limits = limits
        self._launcher = launcher
        self._clock = clock
        self._timer = timer
        self._start_limit_s = start_limit_s
        self._recovery_limit_s = recovery_limit_s
        self._places: dict[str, _Place] = {}
        self._entries: dict[str, _Entry] = {}
        self._expected: dict[str, _ExpectedJob] = {}
        self._waits: dict[str, LaunchWait] = {}
        self._is_blocked = False
        self._next_check: Cancellable | None = None

    def check(self, graph: JobGraph) -> None:
        """Raise InvalidConfiguration if the job's settings are wrong, or if its driver could never start here."""
        priority_of(graph.configuration)
        demand, most = self._launcher.demand_of(graph), self.limits.memory
        if demand is not None and most is not None and demand.memory > most:
            raise _demand_too_high(graph, demand, most)

    def wait_of(self, job_id: str) -> tuple[LaunchWait, int] | None:
        """Return why the job waits and since when (epoch ms), None for a job that does not wait."""
        entry, wait = self._entries.get(job_id), self._waits.get(job_id)
        return None if entry is None or wait is None else (wait, entry.since_ms)

    # --- a new leader -------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Start no driver until `release`, because the jobs of the last leader are not known yet."""
        self._is_blocked = True

    def release(self) -> None:
        self._is_blocked = False
        self._admit_waiting()

    def expect(self, graph: JobGraph) -> None:
        """Make jobs of lower priority wait until this job of the last leader is recovered, or a time limit is over.

        Ignore a job whose driver runs elsewhere: it may wait there for long, and it uses nothing on this machine.
        """
        if self._demand(graph) is not None:
            self._expected[graph.job_id] = _ExpectedJob(
                _priority(graph), self._clock.monotonic() + self._recovery_limit_s
            )

    def adopted(self, graph: JobGraph) -> None:
        """Reserve the job's place: its driver probably runs on this machine. `started` says that its queries run."""
        if (demand := self._demand(graph)) is not None:
            self._places[graph.job_id] = self._starting(demand)

    def clear(self) -> None:
        """Forget all jobs, because the leader's term is over."""
        self._places.clear()
        self._entries.clear()
        self._expected.clear()
        self._waits = {}
        self._is_blocked = False
        if self._next_check is not None:
            self._next_check.cancel()

    # --- a job's life -------------------------------------------------------------------------------------------

    async def wait_for_turn(self, graph: JobGraph) -> None:
        """Wait until the job's driver may start. A job that is canceled meanwhile leaves the queue."""
        job_id, demand = graph.job_id, self._demand(graph)
        self._forget_start(job_id)
        if demand is None:
            self._admit_waiting()
            return
        entry = self._entry(graph, demand)
        self._entries[job_id] = entry
        self._admit_waiting()
        try:
            await entry.turn
        finally:
            if self._entries.get(job_id) is entry:
                del self._entries[job_id]
                self._admit_waiting()

    def registered(self, job_id: str) -> None:
        """Note that the job's driver registered, though it does not run yet.

        Other jobs no longer wait for this recovery.
        """
        if self._expected.pop(job_id, None) is not None:
            self._admit_waiting()

    def started(self, job_id: str) -> None:
        """Note that the start is over: the driver runs, or the attempt has ended."""
        if self._forget_start(job_id):
            self._admit_waiting()

    def left(self, job_id: str) -> None:
        """Give up the job's place: the job has ended here, and its driver is gone."""
        self._expected.pop(job_id, None)
        self._places.pop(job_id, None)
        self._admit_waiting()

    def _forget_start(self, job_id: str) -> bool:
        """Forget the job's start. Return whether other jobs may have waited for its end."""
        was_expected = self._expected.pop(job_id, None) is not None
        place = self._places.get(job_id)
        if place is None or place.starts_until is None:
            return was_expected
        self._places[job_id] = replace(place, starts_until=None)
        return True

    def _entry(self, graph: JobGraph, demand: Demand) -> _Entry:
        waiting = Waiting(
            graph.job_id,
            demand,
            _priority(graph),
            graph.submitted_ms,
            self._clock.monotonic(),
            has_place=graph.job_id in self._places,
        )
        return _Entry(waiting, self._clock.now_ms(), asyncio.get_running_loop().create_future())

    def _admit_waiting(self) -> None:
        """Admit all jobs that may start now. Check again soon if others wait, as some changes trigger no event."""
        now = self._clock.monotonic()
        load = sum((place.load(now) for place in self._places.values()), Load())
        waiting = [entry.waiting for entry in self._entries.values()]
        decision = decide(
            waiting, load + self._launcher.spare_load, self.limits, least_priority=self._least_priority(now)
        )
        for job_id in decision.admitted:
            self._admit(self._entries.pop(job_id))
        self._waits = dict(decision.waits)
        self._limit_spares(now)
        if self._next_check is not None:
            self._next_check.cancel()
        self._next_check = self._timer.call_later(_LOOK_S, self._admit_waiting) if self._entries else None

    def _admit(self, entry: _Entry) -> None:
        self._places[entry.waiting.job_id] = self._starting(entry.waiting.demand)
        if not entry.turn.done():
            entry.turn.set_result(None)

    def _limit_spares(self, now: float) -> None:
        load = sum((place.load(now) for place in self._places.values()), Load())
        waiting = (entry.waiting for entry in self._entries.values())
        self._launcher.limit_spares(room_for_spares(waiting, load, self.limits))

    def _starting(self, demand: Demand) -> _Place:
        return _Place(demand, self._clock.monotonic() + self._start_limit_s)

    def _least_priority(self, now: float) -> float:
        if self._is_blocked:
            return float("inf")
        self._expected = {job_id: each for job_id, each in self._expected.items() if now < each.until_s}
        return max((each.priority for each in self._expected.values()), default=float("-inf"))

    def _demand(self, graph: JobGraph) -> Demand | None:
        """Return what the driver needs, or None if it runs elsewhere or the settings of an old job do not say.

        The launch then reports what is wrong with those settings.
        """
        try:
            return self._launcher.demand_of(graph)
        except InvalidConfiguration as error:
            logger.warning("job %s: its driver is not counted: %s", graph.job_id, error)
            return None


def _demand_too_high(graph: JobGraph, demand: Demand, most: int) -> InvalidConfiguration:
    key = MEMORY if MEMORY in graph.configuration else HEAP
    return InvalidConfiguration(
        key,
        graph.configuration.get(key, DRIVER_MEMORY),
        f"the driver would take {gib(demand.memory)} of this machine's memory, and all drivers together may take "
        f"{gib(most)} (WAYMARK_DRIVER_MEMORY)",
    )


def _priority(graph: JobGraph) -> int:
    """Return the priority. Accept an invalid value as 0, because the job may come from an earlier version."""
    try:
        return priority_of(graph.configuration)
    except InvalidConfiguration:
        return 0
