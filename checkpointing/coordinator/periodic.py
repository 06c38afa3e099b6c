"""The periodic trigger: fixed cadence, first delay random, on the monotonic clock."""

from __future__ import annotations

from collections.abc import Callable

from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import CancelTimer, JobTimer, SetTimer


class PeriodicScheduler:
    """Sets its timer for every interval while started. `initial_delay_ms(low, high)` picks the very first delay."""

    def __init__(self, context: CoordinatorContext, initial_delay_ms: Callable[[int, int], int]) -> None:
        self._config = context.config
        self._clock = context.clock
        self._outbox = context.outbox
        self._initial_delay_ms = initial_delay_ms
        self.is_running = False
        self._started_before = False
        self._due = 0.0

    def start(self) -> None:
        """First time after a random delay in [min pause, interval], lest all jobs fire together; later min pause."""
        if not self._config.periodic:
            return
        delay_ms = self._config.min_pause_ms
        if not self._started_before:
            delay_ms = self._initial_delay_ms(self._config.min_pause_ms, self._config.effective_interval_ms)
        self._started_before = True
        self.is_running = True
        self._schedule(delay_ms / 1000)

    def stop(self) -> None:
        self.is_running = False
        self._outbox.put(CancelTimer(JobTimer.PERIODIC))

    def postpone(self, delay_ms: float) -> None:
        """Fire next in `delay_ms`, and every interval from there; nothing when stopped."""
        if self.is_running:
            self._schedule(delay_ms / 1000)

    def fired(self) -> None:
        """Schedule the next time. A late thread skips what it missed; it does not catch up."""
        interval_s = self._config.effective_interval_ms / 1000
        now = self._clock.monotonic()
        missed = max(0, int((now - self._due) // interval_s))
        self._schedule(self._due + (missed + 1) * interval_s - now)

    def _schedule(self, delay_s: float) -> None:
        self._due = self._clock.monotonic() + delay_s
        self._outbox.put(SetTimer(JobTimer.PERIODIC, delay_s))
