"""The only source of time. Decisions take a Clock; tests pass a ManualClock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds, for display and storage, never for measuring a wait."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never jumps, for every wait, lease and timeout."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only on request. Both times move together, except that `jump` moves the wall clock alone."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1_000.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock only, as the correction by a time server does."""
        self._now_ms += round(seconds * 1000)
