"""Minimum, maximum, average and quantiles of a growing row of numbers."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Iterable, Sequence

from checkpointing.coordinator.stats_model import Distribution, Quantiles
from checkpointing.model.messages import UNKNOWN

QUANTILE_WINDOW = 10_000


class RunningSummary:
    """Minimum, maximum and average over all values; quantiles over the last `window`. Adding costs no sort."""

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
    """The estimate of Apache Commons Math (LEGACY), which Flink uses: position p·(n+1)/100, interpolated."""
    n = len(ascending)
    position = p * (n + 1) / 100
    if position < 1:
        return float(ascending[0])
    if position >= n:
        return float(ascending[-1])
    below = math.floor(position)
    lower, upper = ascending[below - 1], ascending[below]
    return lower + (position - below) * (upper - lower)
