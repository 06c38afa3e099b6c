"""Decides which checkpoint request runs next: Flink's CheckpointRequestDecider. Facts in, a decision out; no I/O."""

from __future__ import annotations

import bisect
import itertools
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint

MAX_QUEUED_REQUESTS = 1000

_sequence = itertools.count()


def running_future() -> Future[Any]:
    """Return a future that its holder cannot cancel: only the coordinator ends it."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


@dataclass(frozen=True, eq=False)
class CheckpointRequest:
    """A request for a checkpoint. `sequence` is its age, which does not change when the wall clock is set back."""

    properties: CheckpointProperties
    is_periodic: bool
    target_directory: str | None = None
    full: bool = False
    future: Future[CompletedCheckpoint] = field(default_factory=running_future)
    sequence: int = field(default_factory=lambda: next(_sequence))

    @property
    def is_forced(self) -> bool:
        return self.properties.forced

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Return the sort key, smallest first: savepoints, forced requests, requests of users, older requests."""
        return (
            not self.properties.is_savepoint,
            not self.is_forced,
            self.is_periodic,
            self.sequence,
        )


@dataclass(frozen=True)
class CoordinatorFacts:
    """The facts for the decision. Times are monotonic milliseconds; `last_completion_ms` is None before the first."""

    is_triggering: bool
    num_pending: int
    num_cleaning: int
    now_ms: float
    last_completion_ms: float | None


@dataclass(frozen=True)
class Rejection:
    request: CheckpointRequest
    reason: CheckpointFailureReason

    @property
    def exception(self) -> CheckpointException:
        return CheckpointException(self.reason)


@dataclass(frozen=True)
class Decision:
    """The decision. `chosen` starts now, `rejected` fail, and the periodic timer fires again after `postpone_ms`."""

    chosen: CheckpointRequest | None = None
    rejected: tuple[Rejection, ...] = ()
    postpone_ms: float | None = None


class CheckpointRequestDecider:
    def __init__(self, *, max_concurrent: int, min_pause_ms: int, max_queued: int = MAX_QUEUED_REQUESTS) -> None:
        self._max_concurrent = max_concurrent
        self._min_pause_ms = min_pause_ms
        self._max_queued = max_queued
        self._queue: list[CheckpointRequest] = []

    @property
    def num_queued(self) -> int:
        return len(self._queue)

    @property
    def has_periodic_checkpoint(self) -> bool:
        return any(request.is_periodic and not request.properties.is_savepoint for request in self._queue)

    def submit(self, request: CheckpointRequest, facts: CoordinatorFacts) -> Decision:
        """Queue `request`, then choose.

        If the queue is full, reject the worst periodic request in it, or else the new one.
        """
        too_many = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS
        if len(self._queue) >= self._max_queued and not self._queue[-1].is_periodic:
            return Decision(rejected=(Rejection(request, too_many),))
        bisect.insort(self._queue, request, key=lambda queued: queued.rank)
        dropped: tuple[Rejection, ...] = ()
        if len(self._queue) > self._max_queued:
            dropped = (Rejection(self._queue.pop(), too_many),)
        decision = self.choose(facts)
        return Decision(decision.chosen, dropped + decision.rejected, decision.postpone_ms)

    def choose(self, facts: CoordinatorFacts) -> Decision:
        """Return the queued request that may start under `facts`, and remove it from the queue."""
        if facts.is_triggering or not self._queue or facts.num_cleaning > self._max_concurrent:
            return Decision()
        first = self._queue[0]
        if facts.num_pending >= self._max_concurrent:
            return Decision(chosen=self._queue.pop(0)) if first.is_forced else Decision()
        if first.is_periodic and not first.is_forced:
            remaining = self._remaining_pause_ms(facts)
            if remaining > 0:
                rejection = Rejection(self._queue.pop(0), CheckpointFailureReason.MINIMUM_TIME_BETWEEN_CHECKPOINTS)
                return Decision(rejected=(rejection,), postpone_ms=remaining)
        return Decision(chosen=self._queue.pop(0))

    def drain(self) -> tuple[CheckpointRequest, ...]:
        """Return all queued requests, best first, and empty the queue."""
        drained, self._queue = tuple(self._queue), []
        return drained

    def _remaining_pause_ms(self, facts: CoordinatorFacts) -> float:
        if facts.last_completion_ms is None:
            return 0
        return facts.last_completion_ms + self._min_pause_ms - facts.now_ms
