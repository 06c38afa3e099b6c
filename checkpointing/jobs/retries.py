"""Retries failed pieces of work independently, with growing pauses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0

Work = Callable[[], Awaitable[bool]]
"""A piece of work. It returns True when nothing is left to do. An exception is logged and counts as False."""

logger = logging.getLogger(__name__)


class Retries:
    """The retries during one leader's terms, on the event loop."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def now_or_later(self, name: str, work: Work) -> None:
        """Call `work` once and wait for it. If it fails, retry it in the background. Raise nothing."""
        if not await _is_done(name, work):
            self.again(name, work)

    def again(self, name: str, work: Work) -> None:
        """Call `work` after a pause until it returns True. Do nothing if work with this name is already waiting."""
        if name in self._tasks:
            return
        task = asyncio.create_task(_until_done(name, work), name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    def is_waiting(self, name: str) -> bool:
        return name in self._tasks

    async def cancel_all(self) -> None:
        """Cancel all retries at the end of a term. Return when none of them runs any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_done(name: str, work: Work) -> None:
    pause_s = FIRST_PAUSE_S
    while True:
        await asyncio.sleep(pause_s)
        if await _is_done(name, work):
            return
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _is_done(name: str, work: Work) -> bool:
    try:
        return await work()
    except Exception:
        # A failed piece of work must neither stop the others nor be forgotten.
        logger.exception("%s failed and is retried", name)
        return False
