"""Faults of a worker at a chosen point of its cycle, between any two of its steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any
from unittest.mock import patch

from monitoring.recovery import applying, cycle, moving
from monitoring.recovery.stages import start_job
from monitoring.savepoints import cycle as savepoints_cycle

# Every fault may occur between two transactions. Within a transaction only the worker's death matters, because other
# processes see no difference. A recovery step runs in another thread, so a fault precedes the storing of its outcome.
BETWEEN: tuple[tuple[ModuleType, str], ...] = (
    (cycle, "facts_of"),
    (cycle, "_open"),
    (cycle, "open_breaker"),
    (cycle, "report_not_restarted"),
    (moving, "_claim"),
    (moving, "_plan"),
    (moving, "_settle"),
    (savepoints_cycle, "call_all"),
    (savepoints_cycle, "settle"),
)
INSIDE: tuple[tuple[ModuleType, str], ...] = (
    (cycle, "open_attempt"),
    (applying, "show_step"),
    (applying, "end"),
    (start_job, "write"),
)


class Killed(BaseException):
    """The death of a worker by SIGKILL: no handler runs and nothing is cleaned up."""


class Fate:
    """A counter of the points of a cycle. At the chosen point it calls `act` once, or kills the worker."""

    def __init__(self) -> None:
        self._left = -1
        self._act: Callable[[], None] | None = None
        self._kills = False
        self._patches = ExitStack()
        for owner, name in BETWEEN:
            self._watch(owner, name, inside=False)
        for owner, name in INSIDE:
            self._watch(owner, name, inside=True)

    def lift(self) -> None:
        self._patches.close()

    def strike(self, point: int, act: Callable[[], None] | None) -> None:
        """Choose a point, counted from now, at which `act` is called. If it is None, the worker is killed there."""
        self._left, self._act, self._kills = point, act, act is None

    @property
    def waits(self) -> bool:
        """Return whether the worker has not reached the chosen point yet."""
        return self._left >= 0

    def spare(self) -> None:
        self._left, self._act, self._kills = -1, None, False

    def _watch(self, owner: ModuleType, name: str, *, inside: bool) -> None:
        real = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self._come_by(inside)
            answer = real(*args, **kwargs)
            self._come_by(inside)
            return answer

        self._patches.enter_context(patch.object(owner, name, watched))

    def _come_by(self, inside: bool) -> None:
        if self._left < 0 or (inside and not self._kills):
            return
        self._left -= 1
        if self._left >= 0:
            return
        act = self._act
        self.spare()
        if act is None:
            raise Killed
        act()
