"""Calls to the storage of a watched directory, in daemon threads and within a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.storage import StorageError, canonical, files_for
from checkpointing.storage.files import Files
from monitoring.engine.errors import RequestNotSent
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.refusals import reason_of
from monitoring.state_roots import names_a_root

T = TypeVar("T")

# How many calls to one storage may hang before Waymark sends no more.
HANGING = 4


class StorageCalls:
    """Calls to the storage of `root`. Used by one event loop."""

    def __init__(self, root: str, files: Files | None = None) -> None:
        self.root = root
        self._files = files
        self._hanging = 0

    def open(self) -> Files:
        """Return the storage. Raise RequestNotSent if Waymark may not read it, or has no driver for it."""
        if self._files is None:
            if not names_a_root(self.root):
                raise RequestNotSent(EngineReason.ROOT_NOT_ALLOWED(root=self.root))
            try:
                self.root = canonical(self.root)
                self._files = files_for(self.root)
            except StorageError as error:
                raise RequestNotSent(reason_of(error)) from error
        return self._files

    async def run(self, work: Callable[[], T], limit_s: float) -> T:
        """Return the result of `work`. Raise TimeoutError if storage does not answer in time."""
        if self._hanging >= HANGING:
            raise TimeoutError
        future = in_daemon_thread(work, f"reads {self.root}")
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.shield(asyncio.wrap_future(future))
        finally:
            if not future.done():
                self._hanging += 1
                loop = asyncio.get_running_loop()
                future.add_done_callback(lambda _: self._in_loop(loop, self._returned))

    def _returned(self) -> None:
        self._hanging -= 1

    @staticmethod
    def _in_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(work)
