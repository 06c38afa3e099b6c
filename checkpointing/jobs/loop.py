"""The job manager's event loop, and the threads for blocking work.

The loop's thread is the job manager's main thread. It makes no file system call: storage that does not answer would
stop every heartbeat, and all drivers would end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.storage.errors import StorageSilent

T = TypeVar("T")

logger = logging.getLogger(__name__)

THREADS_OF_A_JOB = 4
DEFAULT_SILENCE_S = 40.0


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timer(Protocol):
    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` on the main thread after `delay_s` seconds of monotonic time."""
        ...


class LoopTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay_s, callback)


class _Call(Generic[T]):
    """One call. `last_progress_s` is when the work was queued, started, or last reported progress."""

    def __init__(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, *, may_be_refused: bool) -> None:
        self.work = work
        self.may_be_refused = may_be_refused
        self.result: asyncio.Future[T] = loop.create_future()
        self.result.add_done_callback(_retrieve_error)
        self.watch: asyncio.TimerHandle | None = None
        self._now = loop.time
        self.record_progress()

    def record_progress(self) -> None:
        """Record that the work made progress. Thread-safe."""
        self.last_progress_s = self._now()

    def settle(self, done: Future[T]) -> None:
        if self.result.done():  # no caller waits for the result any more
            return
        error = done.exception()
        if error is None:
            self.result.set_result(done.result())
        else:
            self.result.set_exception(error)


class LoopIoExecutor:
    """Run the blocking work of one `owner`, each piece in a thread, at most `threads` at a time. Used on the loop.

    A call is *silent* when it has reported no progress (see `daemon_threads.progressed`) for `silence_s`. A silent call
    cannot be ended and keeps its thread. While all threads are silent, `submit` and `read` fail with StorageSilent
    before their work begins; `run` waits.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: str,
        *,
        silence_s: float = DEFAULT_SILENCE_S,
        threads: int = THREADS_OF_A_JOB,
    ) -> None:
        self.silence_s = silence_s
        self._loop = loop
        self._owner = owner
        self._threads = threads
        self._running: set[_Call[Any]] = set()
        self._waiting: deque[_Call[Any]] = deque()
        self._next_check: asyncio.TimerHandle | None = None
        self._last_end_s = loop.time()

    @property
    def num_running(self) -> int:
        """Return the number of threads in use, silent ones included."""
        return len(self._running)

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], None], on_error: Callable[[Exception], None]
    ) -> None:
        """Start `work`. Call `on_done` or `on_error` on the loop when it ends, however late, or is refused."""

        def finished(future: asyncio.Future[T]) -> None:
            error = future.exception()
            if error is None:
                on_done(future.result())
            elif isinstance(error, Exception):
                on_error(error)
            else:
                raise error

        self._call(work, may_be_refused=True).result.add_done_callback(finished)

    async def run(self, work: Callable[[], T]) -> T:
        """Wait for `work`, which changes data, however long it takes."""
        return await self._call(work, may_be_refused=False).result

    async def read(self, at: str, read: Callable[[], T], *, silence_s: float | None = None) -> T:
        """Wait for `read` while it makes progress. Raise StorageSilent, naming `at`, if it makes none.

        Use it only for work that may safely continue after the caller has given up, such as reads.
        """
        limit_s = self.silence_s if silence_s is None else silence_s
        call = self._call(read, may_be_refused=True)
        try:
            while not call.result.done():
                left_s = call.last_progress_s + limit_s - self._loop.time()
                if left_s <= 0:
                    raise StorageSilent(at, limit_s)
                await asyncio.wait({call.result}, timeout=left_s)
        finally:
            call.result.cancel()
        return call.result.result()

    async def wait_while_active(self, future: asyncio.Future[T], *, silence_s: float | None = None) -> T:
        """Wait for `future`, which depends on this owner's calls. Raise StorageSilent if all of them are silent."""
        limit_s = self.silence_s if silence_s is None else silence_s
        began_s = self._loop.time()
        while not future.done():
            last_s = max((self._last_end_s, began_s, *(call.last_progress_s for call in self._running)))
            left_s = last_s + limit_s - self._loop.time()
            if left_s <= 0:
                raise StorageSilent(self._owner, limit_s)
            await asyncio.wait({future}, timeout=left_s)
        return future.result()

    def _call(self, work: Callable[[], T], *, may_be_refused: bool) -> _Call[T]:
        call = _Call(work, self._loop, may_be_refused=may_be_refused)
        self._waiting.append(call)
        self._start_waiting()
        return call

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._threads:
            call = self._waiting.popleft()
            if not call.result.done():
                self._begin(call)
        if any(call.may_be_refused for call in self._waiting):
            self._refuse_when_silent()

    def _begin(self, call: _Call[Any]) -> None:
        call.record_progress()
        self._running.add(call)
        self._warn_when_silent(call)
        in_daemon_thread(call.work, self._owner, call.record_progress).add_done_callback(
            lambda done: self._on_loop(lambda: self._ended(call, done))
        )

    def _on_loop(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed because the job manager has ended
            self._loop.call_soon_threadsafe(callback)

    def _ended(self, call: _Call[Any], done: Future[Any]) -> None:
        self._running.discard(call)
        if call.watch is not None:
            call.watch.cancel()
        self._last_end_s = self._loop.time()
        call.settle(done)
        self._start_waiting()

    def _warn_when_silent(self, call: _Call[Any]) -> None:
        left_s = self._seconds_until_silent([call])
        if left_s > 0:
            call.watch = self._loop.call_later(left_s, self._warn_when_silent, call)
        else:
            silent = sum(self._seconds_until_silent([other]) <= 0 for other in self._running)
            text = "%s has not answered for %g s; %d of %d threads wait for it"
            logger.warning(text, self._owner, self.silence_s, silent, self._threads)

    def _seconds_until_silent(self, calls: Iterable[_Call[Any]]) -> float:
        """Return the seconds until the last of the calls becomes silent."""
        return max(call.last_progress_s for call in calls) + self.silence_s - self._loop.time()

    def _refuse_when_silent(self) -> None:
        """Refuse waiting calls if all threads are silent.

        Otherwise check again when the last thread would become silent.
        """
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None
        left_s = self._seconds_until_silent(self._running)
        if left_s > 0:
            self._next_check = self._loop.call_later(left_s, self._start_waiting)
            return
        refused = [call for call in self._waiting if call.may_be_refused]
        self._waiting = deque(call for call in self._waiting if not call.may_be_refused)
        for call in refused:
            if not call.result.done():
                call.result.set_exception(StorageSilent(self._owner, self.silence_s))


class IoThreads:
    """The executors of all owners. Storage that hangs for one owner blocks no thread of another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, silence_s: float = DEFAULT_SILENCE_S) -> None:
        self._loop = loop
        self._silence_s = silence_s
        self._executors: WeakValueDictionary[str, LoopIoExecutor] = WeakValueDictionary()

    def of(self, owner: str, threads: int = THREADS_OF_A_JOB) -> LoopIoExecutor:
        """Return the executor of `owner`. It exists as long as someone holds it or one of its calls runs."""
        executor = self._executors.get(owner)
        if executor is None:
            executor = LoopIoExecutor(self._loop, owner, silence_s=self._silence_s, threads=threads)
            self._executors[owner] = executor
        return executor


def _retrieve_error(result: asyncio.Future[Any]) -> None:
    """Read the result's error, so that asyncio does not warn when the caller has given up."""
    if not result.cancelled():
        result.exception()
