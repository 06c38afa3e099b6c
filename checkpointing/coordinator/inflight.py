"""An IoExecutor that knows how much of its work is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from checkpointing.coordinator.ports import IoExecutor

T = TypeVar("T")


class InFlightIo:
    """Passes work on to `io`; `on_idle` follows, after the callback, whenever the last work under way has ended."""

    def __init__(self, io: IoExecutor, on_idle: Callable[[], None]) -> None:
        self._io = io
        self._on_idle = on_idle
        self._num_in_flight = 0

    @property
    def is_idle(self) -> bool:
        return self._num_in_flight == 0

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], None], on_error: Callable[[Exception], None]
    ) -> None:
        self._num_in_flight += 1

        def done(result: T) -> None:
            self._num_in_flight -= 1
            on_done(result)
            self._check_idle()

        def failed(error: Exception) -> None:
            self._num_in_flight -= 1
            on_error(error)
            self._check_idle()

        self._io.submit(work, done, failed)

    def _check_idle(self) -> None:
        if self._num_in_flight == 0:
            self._on_idle()
