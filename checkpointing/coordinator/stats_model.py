"""The statistics of a job's checkpoints as frozen values, and how their distributions are computed.

`stats` collects them, and `stats_json` renders them.

Sizes in bytes, durations in milliseconds, timestamps in epoch milliseconds; −1 means "not yet", as in Flink.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from checkpointing.model.checkpoint import CheckpointProperties
from checkpointing.model.messages import UNKNOWN, SubtaskMetrics

NOT_YET = -1
QUANTILE_WINDOW = 10_000


class CheckpointStatsStatus(Enum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Quantiles:
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


@dataclass(frozen=True)
class Distribution:
    """Figures of several values. All are 0 without any value, and `quantiles` is None for too few values."""

    minimum: int = 0
    maximum: int = 0
    average: int = 0
    quantiles: Quantiles | None = None


NOTHING_BUFFERED = Distribution(quantiles=Quantiles(0.0, 0.0, 0.0, 0.0, 0.0))
"""Flink's `alignment_buffered`, which is always zero."""


@dataclass(frozen=True)
class CheckpointCounts:
    """Counts of checkpoints. `total` includes those that failed before they got an ID, but no restores."""

    restored: int = 0
    total: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True)
class CompletedSummary:
    """A summary of all checkpoints and savepoints that completed under this job manager.

    Quantiles cover the last 10,000.
    """

    checkpointed_size: Distribution = Distribution()
    state_size: Distribution = Distribution()
    end_to_end_duration: Distribution = Distribution()
    processed_data: Distribution = Distribution()
    persisted_data: Distribution = Distribution()


@dataclass(frozen=True, slots=True)
class SubtaskStatistics:
    """The figures of one subtask that acknowledged."""

    index: int
    ack_timestamp: int
    end_to_end_duration: int
    metrics: SubtaskMetrics


@dataclass(frozen=True)
class Totals:
    """Sums over the subtasks that acknowledged."""

    num_acknowledged: int = 0
    latest_ack_timestamp: int = NOT_YET
    checkpointed_size: int = 0
    state_size: int = 0
    processed_data: int = 0
    persisted_data: int = 0


@dataclass(frozen=True)
class TaskStatistics:
    """One vertex at one checkpoint. Subtask i has `metrics[i]` and `ack_timestamps[i]`: None and −1 while missing."""

    vertex_id: str
    trigger_timestamp: int
    totals: Totals
    metrics: tuple[SubtaskMetrics | None, ...]
    ack_timestamps: tuple[int, ...]

    @property
    def num_subtasks(self) -> int:
        return len(self.metrics)

    @property
    def end_to_end_duration(self) -> int:
        return duration_since(self.trigger_timestamp, self.totals.latest_ack_timestamp)

    @property
    def subtasks(self) -> tuple[SubtaskStatistics | None, ...]:
        """Return the subtasks. They are created on access, because thousands of tasks are stored and few are read."""
        return tuple(
            None
            if metrics is None
            else SubtaskStatistics(index, timestamp, duration_since(self.trigger_timestamp, timestamp), metrics)
            for index, (metrics, timestamp) in enumerate(zip(self.metrics, self.ack_timestamps, strict=True))
        )


def duration_since(trigger_timestamp: int, timestamp: int) -> int:
    """Return the duration, −1 before the first acknowledgement.

    It is never negative, even if the wall clock was set back.
    """
    return NOT_YET if timestamp == NOT_YET else max(0, timestamp - trigger_timestamp)


@dataclass(frozen=True)
class CheckpointStatistics:
    """One checkpoint. The failure fields have a meaning only if it failed.

    `external_path`, `metadata_size` (bytes) and `discarded` have a meaning only if it completed. `waiting_for`: a text
    about what it waits for while in progress, "" if the tasks reported nothing.
    """

    checkpoint_id: int
    status: CheckpointStatsStatus
    properties: CheckpointProperties
    trigger_timestamp: int
    end_to_end_duration: int
    num_subtasks: int
    totals: Totals
    tasks: tuple[TaskStatistics, ...]
    external_path: str | None = None
    metadata_size: int = NOT_YET
    discarded: bool = False
    failure_timestamp: int = NOT_YET
    failure_message: str | None = None
    waiting_for: str = ""

    def task(self, vertex_id: str) -> TaskStatistics | None:
        return next((task for task in self.tasks if task.vertex_id == vertex_id), None)


@dataclass(frozen=True)
class RestoredCheckpoint:
    checkpoint_id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


@dataclass(frozen=True)
class CheckpointStatsSnapshot:
    """All statistics at one moment. They do not change later.

    `history` is newest first and holds all three statuses. `latest_completed` is never a savepoint; those are in
    `latest_savepoint`.
    """

    counts: CheckpointCounts = CheckpointCounts()
    summary: CompletedSummary = CompletedSummary()
    latest_completed: CheckpointStatistics | None = None
    latest_savepoint: CheckpointStatistics | None = None
    latest_failed: CheckpointStatistics | None = None
    latest_restored: RestoredCheckpoint | None = None
    history: tuple[CheckpointStatistics, ...] = ()

    def find(self, checkpoint_id: int) -> CheckpointStatistics | None:
        """Return a checkpoint from the history, or from the latest ones, which stay longer.

        Return None if it is unknown.
        """
        latest = (self.latest_completed, self.latest_savepoint, self.latest_failed)
        known = (*self.history, *(statistics for statistics in latest if statistics is not None))
        return next((statistics for statistics in known if statistics.checkpoint_id == checkpoint_id), None)


class RunningSummary:
    """Minimum, maximum and average over all values, and quantiles over the last `window`.

    Adding a value needs no sort.
    """

    def __init__(self, window: int = QUANTILE_WINDOW) -> None:
        self._window = window
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []
        self._minimum = self._maximum = self._sum = self._count = 0

    def add(self, value: int) -> None:
        self._minimum = value if self._count == 0 else min(self._minimum, value)
        self._maximum = value if self._count == 0 else max(self._maximum, value)
        self._sum += value
        self._count += 1
        self._recent.append(value)
        bisect.insort(self._sorted, value)
        if len(self._recent) > self._window:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft())]

    def distribution(self) -> Distribution:
        if self._count == 0:
            return Distribution()
        return Distribution(self._minimum, self._maximum, self._sum // self._count, quantiles_of(self._sorted))


def distribution_without_quantiles(values: Iterable[int]) -> Distribution:
    """Return the distribution over the subtasks of one vertex, as Flink does. Subtasks with UNKNOWN do not count."""
    row = list(values)
    known = [value for value in row if value != UNKNOWN]
    if not known:
        return Distribution(UNKNOWN, UNKNOWN, UNKNOWN) if row else Distribution()
    return Distribution(min(known), max(known), sum(known) // len(known))


def quantiles_of(ascending: Sequence[int]) -> Quantiles:
    return Quantiles(*(_percentile(ascending, p) for p in (50.0, 90.0, 95.0, 99.0, 99.9)))


def _percentile(ascending: Sequence[int], p: float) -> float:
    """Return the estimate of Apache Commons Math (LEGACY), which Flink uses: position p·(n+1)/100, interpolated."""
    n = len(ascending)
    position = p * (n + 1) / 100
    if position < 1:
        return float(ascending[0])
    if position >= n:
        return float(ascending[-1])
    below = math.floor(position)
    lower, upper = ascending[below - 1], ascending[below]
    return lower + (position - below) * (upper - lower)
