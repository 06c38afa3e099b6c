"""Long actions of a job, such as a stop with savepoint. Only one may run at a time for each job."""

from __future__ import annotations

import asyncio
from enum import Enum


class OperationRefused(Exception):
    """The job cannot do this now, or not at all. The text says why."""


class LongAction(Enum):
    """A kind of long action. The value begins the sentence that a refused caller reads."""

    STOP = "A stop-with-savepoint"
    CANCEL = "A cancel-with-savepoint"
    RESCALE = "A change of the parallelism"
    FINAL_SAVEPOINT = "The final savepoint of a job that has ended by itself"


class LongActions:
    """The long actions of one job. Used on the job manager's main thread only."""

    def __init__(self) -> None:
        self.current: LongAction | None = None
        self._free = asyncio.Event()
        self._free.set()

    def require_none(self) -> None:
        """Raise OperationRefused, naming the action that is in progress."""
        if self.current is not None:
            raise OperationRefused(f"{self.current.value} is in progress.")

    def begin(self, action: LongAction) -> None:
        """Raise OperationRefused while another action is in progress."""
        self.require_none()
        self.current = action
        self._free.clear()

    async def begin_when_free(self, action: LongAction) -> None:
        """Wait until no other action is in progress, then begin."""
        while self.current is not None:
            await self._free.wait()
        self.begin(action)

    def end(self) -> None:
        """Let the next action begin."""
        self.current = None
        self._free.set()
