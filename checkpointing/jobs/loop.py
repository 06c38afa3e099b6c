"""The coordinator's timer and I/O executor over an asyncio loop: the loop's thread is the job manager's main thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from checkpointing.coordinator.ports import Cancellable

T = TypeVar("T")


class LoopTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay_s, callback)


class LoopIoExecutor:
    """Runs blocking work on `executor`; callbacks come back on the loop. `run` is the same for coroutines."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], None], on_error: Callable[[Exception], None]
    ) -> None:
        def finished(future: asyncio.Future[T]) -> None:
            if future.cancelled():
                on_error(RuntimeError("the job manager is shutting down"))
                return
            error = future.exception()
            if error is None:
                on_done(future.result())
            elif isinstance(error, Exception):
                on_error(error)
            else:
                raise error

        self._loop.run_in_executor(self._executor, work).add_done_callback(finished)

    async def run(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._executor, work)
