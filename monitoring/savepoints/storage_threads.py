"""Access storage that may never answer: each access runs in its own thread, and the wait for it is limited.

An access that hangs (a mount without its server, an endpoint that accepts a connection and sends nothing) cannot be
ended from outside. Its thread continues and occupies one of PLACES for that root. If all places of a root hang, new
accesses to the root fail at once, until one of them returns.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from monitoring.reasons.savepoints import SavepointReason

T = TypeVar("T")

# How many accesses to one root may be in progress, or hang, at the same time.
PLACES = 4


class StorageSilent(OSError):
    """Raised if the storage of `place` did not answer in time.

    `waited_s`: the length of the wait, nearly 0 if earlier accesses used up the time or hang.
    """

    def __init__(self, place: str, time_limit: TimeLimit, waited_s: float) -> None:
        self.reason = SavepointReason.STORAGE_SILENT(place=place, limit_s=time_limit.limit_s)
        super().__init__(str(self.reason))
        self.place, self.waited_s = place, waited_s


class TimeLimit:
    """A time limit in seconds for several accesses together."""

    def __init__(self, limit_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._monotonic = monotonic
        self._until = monotonic() + limit_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - self._monotonic())


class StorageThreads:
    """The storage accesses of one process. May be used from any thread."""

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._free: dict[str, threading.BoundedSemaphore] = defaultdict(lambda: threading.BoundedSemaphore(places))
        self._hanging: Counter[str] = Counter()

    def hanging(self, root: str) -> int:
        """Return how many accesses to `root` were given up and have not returned."""
        with self._lock:
            return self._hanging[root]

    def run(self, root: str, place: str, read: Callable[[], T], time_limit: TimeLimit) -> T:
        """Return or raise the result of `read`.

        Raise StorageSilent if it takes too long or all threads for the root hang.
        """
        left_s = time_limit.left_s
        with self._lock:
            free, hopeless = self._free[root], self._hanging[root] >= self._places
        if hopeless or not free.acquire(timeout=left_s):
            raise StorageSilent(place, time_limit, left_s - time_limit.left_s)
        found: Future[T] = Future()
        threading.Thread(
            target=self._read, args=(root, read, found), name=f"storage access {place}", daemon=True
        ).start()
        try:
            return found.result(time_limit.left_s)
        except TimeoutError:
            if self._give_up(root, found):
                raise StorageSilent(place, time_limit, left_s - time_limit.left_s) from None
            return found.result()  # the result came at the last moment, or is a TimeoutError of the storage

    def _read(self, root: str, read: Callable[[], T], found: Future[T]) -> None:
        try:
            answer = read()
        except BaseException as error:  # noqa: BLE001  (the waiting caller handles it)
            self._finish(root, found, partial(found.set_exception, error))
        else:
            self._finish(root, found, partial(found.set_result, answer))

    def _finish(self, root: str, found: Future[T], tell: Callable[[], None]) -> None:
        with self._lock:
            if found.cancelled():
                self._hanging[root] -= 1
            else:
                tell()
        self._free[root].release()

    def _give_up(self, root: str, found: Future[T]) -> bool:
        with self._lock:
            gone = found.cancel()
            self._hanging[root] += gone
            return gone


STORAGE_THREADS = StorageThreads()
