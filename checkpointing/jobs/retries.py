"""What could not be done now and is tried again, each piece of work by itself, with growing pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0


class Retries:
    """On the event loop, for one leader's terms."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def again(self, name: str, work: Callable[[], Awaitable[bool]]) -> None:
        """Call `work`, which raises nothing, until it returns True; nothing when work of that name waits already."""
        if name in self._tasks:
            return
        task = asyncio.create_task(_until_done(work), name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    def is_waiting(self, name: str) -> bool:
        return name in self._tasks

    async def cancel_all(self) -> None:
        """The term is over: returns when nothing of it runs any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_done(work: Callable[[], Awaitable[bool]]) -> None:
    pause_s = FIRST_PAUSE_S
    while True:
        await asyncio.sleep(pause_s)
        if await work():
            return
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
