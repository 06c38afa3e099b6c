"""Waits that a request to end the job interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class Request(Enum):
    """CANCEL ends the job. SUSPEND leaves it and its driver to the next job manager; SHUTDOWN ends the driver first."""

    CANCEL = "cancel"
    SUSPEND = "suspend"
    SHUTDOWN = "shutdown"


class Interrupted(Exception):
    """A wait was interrupted by `request`."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.value)
        self.request = request


class Interrupts:
    """The requests to end one job. A suspension also interrupts a cancellation, but not the reverse.

    `leads` returns whether the term in which the job runs here still lasts. After that term, every wait is interrupted
    as by a suspension, even before anyone requests it. A process that was paused learns too late that its term is over.
    """

    def __init__(self, leads: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        self._leads = leads
        self._cancel: asyncio.Future[Request] = loop.create_future()
        self._suspend: asyncio.Future[Request] = loop.create_future()

    def request(self, request: Request) -> None:
        """Record the request. Only the first request of each kind counts."""
        future = self._cancel if request is Request.CANCEL else self._suspend
        if not future.done():
            future.set_result(request)

    @property
    def is_cancel_requested(self) -> bool:
        return self._cancel.done()

    async def wait_for(self, awaitable: Awaitable[T], *, cancelling: bool = False) -> T:
        """Return the result of `awaitable`. Raise Interrupted if a request comes first.

        `cancelling`: only a suspension counts. Once the term is over, nothing of `awaitable` runs.
        """
        if not self._leads():
            if isinstance(awaitable, Coroutine):
                awaitable.close()
            raise Interrupted(Request.SUSPEND)
        work: asyncio.Future[T] = asyncio.ensure_future(awaitable)
        requests = [self._suspend] if cancelling else [self._suspend, self._cancel]
        waited: list[asyncio.Future[Any]] = [work, *requests]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            _abandon(work)
            raise
        if not self._leads():
            _abandon(work)
            raise Interrupted(Request.SUSPEND)
        if work.done():
            return work.result()
        _abandon(work)
        raise Interrupted(next(request.result() for request in requests if request.done()))


def _abandon(work: asyncio.Future[Any]) -> None:
    # Other code still uses a plain future, so only tasks are cancelled.
    if isinstance(work, asyncio.Task):
        work.cancel()
    work.add_done_callback(lambda done: None if done.cancelled() else done.exception())
