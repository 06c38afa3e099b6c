"""Nothing new starts in the middle of an end, and what waited starts right after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StartGate:
    """`start_what_waits` runs after each outermost block, never within one."""

    def __init__(self, start_what_waits: Callable[[], None]) -> None:
        self._start_what_waits = start_what_waits
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Blocks within blocks are fine. What raises within one starts nothing."""
        if self._is_held:
            yield
            return
        self._is_held = True
        try:
            yield
            self._start_what_waits()
        finally:
            self._is_held = False

    def proceed(self) -> None:
        """Something ended: do what waited for it."""
        with self.held():
            pass
