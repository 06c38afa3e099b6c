"""Threads for calls that may never return. Unlike the threads of a pool, they do not keep the process from ending.

Long work calls `progressed` between its parts, so that a waiting caller can distinguish slow storage from silent
storage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextvars import ContextVar
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


def _ignore_progress() -> None:
    pass


_on_progress: ContextVar[Callable[[], None]] = ContextVar("on_progress", default=_ignore_progress)


def progressed() -> None:
    """Report that the storage has answered, although the work is not finished."""
    _on_progress.get()()


def in_daemon_thread(work: Callable[[], T], name: str, on_progress: Callable[[], None] = _ignore_progress) -> Future[T]:
    """Return the future of `work`. `on_progress` is called in that thread, and in those that `work` starts here."""
    future: Future[T] = Future()

    def run() -> None:
        _on_progress.set(on_progress)
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001  (the waiting caller handles it)
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def map_in_daemon_threads(function: Callable[[A], T], items: Sequence[A], threads: int, name: str) -> list[T]:
    """Return the results in the order of `items`, or raise the first error at once and start no further item."""
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}
    lock, left = threading.Lock(), iter(enumerate(items))

    def take() -> Iterator[tuple[int, A]]:
        while not errors:
            with lock:
                taken = next(left, None)
            if taken is None:
                return
            yield taken

    def work() -> None:
        for index, item in take():
            try:
                results[index] = function(item)
            except BaseException as error:
                errors[index] = error
                raise
            progressed()

    listener = _on_progress.get()
    wait(
        [in_daemon_thread(work, name, listener) for _ in range(min(threads, len(items)))],
        return_when=FIRST_EXCEPTION,
    )
    if errors:
        raise errors[min(errors)]
    return [results[index] for index in range(len(items))]
