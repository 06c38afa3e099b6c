"""Looks at storage that may never answer: each in a thread of its own, which is waited for only so long.

A look that hangs (a mount whose server is gone, an endpoint that takes a connection and says nothing) cannot be ended
from outside. It is left alone, and holds one of few places: when all places of a root hang, nobody waits for that root
any more, until one of them comes back.
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

# Looks at one root that may be under way, or hang, at once.
PLACES = 4


class StorageSilent(OSError):
    """Nothing is known of `place`: its storage did not answer in time. `waited_s`: how long that was waited for; next
    to nothing where looks before it had used up the patience, or hang."""

    def __init__(self, place: str, patience: Patience, waited_s: float) -> None:
        self.reason = SavepointReason.STORAGE_SILENT(place=place, limit_s=patience.limit_s)
        super().__init__(str(self.reason))
        self.place, self.waited_s = place, waited_s


class Patience:
    """So many seconds in all, for however many looks."""

    def __init__(self, limit_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._monotonic = monotonic
        self._until = monotonic() + limit_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - self._monotonic())


class Looks:
    """Those of one process. May be used from any thread."""

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._free: dict[str, threading.BoundedSemaphore] = defaultdict(lambda: threading.BoundedSemaphore(places))
        self._hanging: Counter[str] = Counter()

    def hanging(self, root: str) -> int:
        """Looks at `root` that nobody waits for any more, and that have not come back."""
        with self._lock:
            return self._hanging[root]

    def look(self, root: str, place: str, read: Callable[[], T], patience: Patience) -> T:
        """What `read` returns or raises; StorageSilent when that does not come in time, or is not to be expected."""
        left_s = patience.left_s
        with self._lock:
            free, hopeless = self._free[root], self._hanging[root] >= self._places
        if hopeless or not free.acquire(timeout=left_s):
            raise StorageSilent(place, patience, left_s - patience.left_s)
        found: Future[T] = Future()
        threading.Thread(target=self._run, args=(root, read, found), name=f"looks at {place}", daemon=True).start()
        try:
            return found.result(patience.left_s)
        except TimeoutError:
            if self._left_alone(root, found):
                raise StorageSilent(place, patience, left_s - patience.left_s) from None
            return found.result()  # it came at the last moment, or is a time-out of the storage's own

    def _run(self, root: str, read: Callable[[], T], found: Future[T]) -> None:
        try:
            answer = read()
        except BaseException as error:  # noqa: BLE001  (whoever waits handles it)
            self._came_back(root, found, partial(found.set_exception, error))
        else:
            self._came_back(root, found, partial(found.set_result, answer))

    def _came_back(self, root: str, found: Future[T], tell: Callable[[], None]) -> None:
        with self._lock:
            if found.cancelled():
                self._hanging[root] -= 1
            else:
                tell()
        self._free[root].release()

    def _left_alone(self, root: str, found: Future[T]) -> bool:
        with self._lock:
            gone = found.cancel()
            self._hanging[root] += gone
            return gone


LOOKS = Looks()
