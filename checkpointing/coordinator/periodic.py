"""The periodic trigger: fixed cadence, first delay random, on the monotonic clock."""

from __future__ import annotations

from collections.abc import Callable

from checkpointing.clock import Clock
from checkpointing.coordinator.ports import Cancellable, Timer
from checkpointing.model.configuration import CheckpointConfiguration


class PeriodicScheduler:
    """Calls `fire` every interval while started. `initial_delay_ms(low, high)` picks the very first delay."""

    def __init__(
        self,
        *,
        config: CheckpointConfiguration,
        clock: Clock,
        timer: Timer,
        fire: Callable[[], None],
        initial_delay_ms: Callable[[int, int], int],
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        self._fire = fire
        self._initial_delay_ms = initial_delay_ms
        self._handle: Cancellable | None = None
        self._started_before = False
        self._due = 0.0

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self) -> None:
        """First time after a random delay in [min pause, interval], lest all jobs fire together; later min pause."""
        self.stop()
        if not self._config.periodic:
            return
        delay_ms = self._config.min_pause_ms
        if not self._started_before:
            delay_ms = self._initial_delay_ms(self._config.min_pause_ms, self._config.effective_interval_ms)
        self._started_before = True
        self._schedule(delay_ms / 1000)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def postpone(self, delay_ms: float) -> None:
        """Fire next in `delay_ms`, and every interval from there; nothing when stopped."""
        if self._handle is not None:
            self._handle.cancel()
            self._schedule(delay_ms / 1000)

    def _schedule(self, delay_s: float) -> None:
        self._due = self._clock.monotonic() + delay_s
        self._handle = self._timer.call_later(delay_s, self._fired)

    def _fired(self) -> None:
        interval_s = self._config.effective_interval_ms / 1000
        now = self._clock.monotonic()
        missed = max(0, int((now - self._due) // interval_s))  # a late thread skips, it does not catch up
        self._schedule(self._due + (missed + 1) * interval_s - now)
        self._fire()
