"""How fast a thread may write while others want the processors.

What is written costs more of them than its thread shows: the kernel's part, and where the machine is a virtual one that
of its host, which serves the disk on the very processors that it lends. 0.6 s a gigabyte, measured, though no processor
copies a byte. No priority covers that; to write less in the same time does.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Self

# As many bytes a second cost 4 % of one processor.
BYTES_A_SECOND_OF_A_PROCESSOR = 64 * 2**20
# A thread rests so many times as long as it had to wait for a processor: beside a query that leaves none over (it waits
# for 37 to 73 % of the time then) until nothing but the limit counts.
_RESTS_A_WAIT = 32.0
# Of the time that it needs, a thread waits 3 to 11 % where nobody else wants a processor: for the kernel's own threads
# and its own kind, milliseconds at a time. So what it waited less than this before counts for it.
_USUAL_WAIT = 1 / 8
# Either way.
_MOST_OWED_S = 1.0
# Nanoseconds that a thread has run, and that it was ready to run and had no processor.
_SCHEDULED = "/proc/thread-self/schedstat"


Hurries = Callable[[], bool]


def unhurried() -> bool:
    return False


class GivingWay:
    """Of the thread that enters it. It never rests where the system does not say how long it waited: Linux does.

    `hurries`: asked before each rest, whether the thread is to rest no more.
    """

    def __init__(self, bytes_a_second: float, hurries: Hurries = unhurried) -> None:
        self._bytes_a_second = bytes_a_second
        self._hurries = hurries
        self._scheduled: int | None = None
        self._owed_s = 0.0

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._scheduled = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
        self._seen = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        if self._scheduled is not None:
            os.close(self._scheduled)

    def wrote(self, size: int) -> None:
        """`size` bytes since it was entered, or was told last.

        Returns at once where it waited no longer than is usual, at the latest when they make `bytes_a_second`.
        """
        (began, waited_before), (ended, waited) = self._seen, self._now()
        took_s, waited_s = ended - began, waited - waited_before
        owed_s = self._owed_s + _RESTS_A_WAIT * (waited_s - _USUAL_WAIT * took_s)
        rest_s = max(0.0, min(owed_s, size / self._bytes_a_second - took_s))
        self._owed_s = max(-_MOST_OWED_S, min(owed_s - rest_s, _MOST_OWED_S))
        if rest_s and not self._hurries():
            time.sleep(rest_s)
        self._seen = self._now()

    def _now(self) -> tuple[float, float]:
        """Seconds on a clock, and for how many of them it has waited in its life."""
        if self._scheduled is None:
            return time.monotonic(), 0.0
        return time.monotonic(), int(os.pread(self._scheduled, 64, 0).split()[1]) / 1e9
