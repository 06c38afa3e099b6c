"""How fast a thread may write while others compute.

What is written costs more of the processors than its thread shows: the kernel's part, and where the machine is a
virtual one that of its host, which serves the disk on the very processors that it lends. 0.6 s a gigabyte, measured,
though no processor copies a byte. No priority covers that; to write less in the same time does.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path

# As many bytes a second cost 4 % of one processor.
BYTES_A_SECOND_OF_A_PROCESSOR = 64 * 2**20
# Shares of all processors' time. Beside a query that waits for its input others compute for 4 to 12 % of it, while it
# runs a batch for 42 to 48 % at least.
_NOBODY, _SOMEBODY = 0.2, 0.4
# Soon believed that they compute, later that they no longer do: what was so long ago counts for a third.
_RISES_S, _FALLS_S = 0.04, 0.1
_LOOKS_EACH_S = 0.03
# When nobody has looked for so long, nothing is known any more.
_FORGOTTEN_S = 1.0
# Ticks that all processors together spent, since the machine runs: on programs of normal priority, of a lower one, …
_STAT = "/proc/stat"
_KINDS = 8


class Processors:
    """Of the machine, as all threads of a process see them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_s = -math.inf
        self._seen = (0, 0)
        self._computing = 1.0

    def wanted(self) -> float:
        """Whether others want them: from 0, nobody does, to 1, also while that is not known yet.

        Others is who computes at a normal priority; threads that give way have a lower one. 0 where the system does
        not say: Linux does.
        """
        with self._lock:
            since_s = time.monotonic() - self._looked_s
            if since_s >= _LOOKS_EACH_S:
                try:
                    self._look(since_s)
                except (OSError, ValueError):
                    return 0.0
            return min(1.0, max(0.0, (self._computing - _NOBODY) / (_SOMEBODY - _NOBODY)))

    def _look(self, since_s: float) -> None:
        with Path(_STAT).open(encoding="ascii") as stat:
            ticks = [int(number) for number in stat.readline().split()[1 : 1 + _KINDS]]
        if not any(ticks):  # as some containers say
            raise ValueError(f"{_STAT} says nothing")
        computed, passed = ticks[0] - self._seen[0], sum(ticks) - self._seen[1]
        if since_s > _FORGOTTEN_S:
            self._computing = 1.0
        elif passed > 0:
            now = computed / passed
            remembered = math.exp(-since_s / (_RISES_S if now > self._computing else _FALLS_S))
            self._computing = remembered * self._computing + (1.0 - remembered) * now
        else:
            return
        self._looked_s, self._seen = time.monotonic(), (ticks[0], sum(ticks))


_PROCESSORS = Processors()
Hurries = Callable[[], bool]


def unhurried() -> bool:
    return False


class GivingWay:
    """Of one thread, from now on.

    `hurries`: asked before each rest, whether the thread is to rest no more.
    """

    def __init__(
        self, bytes_a_second: float, hurries: Hurries = unhurried, processors: Processors = _PROCESSORS
    ) -> None:
        self._bytes_a_second = bytes_a_second
        self._hurries = hurries
        self._processors = processors
        self._since_s = time.monotonic()

    def wrote(self, size: int) -> None:
        """`size` bytes since it was made, or was told last.

        Returns at once where nobody wants the processors; where others do, when they make `bytes_a_second`.
        """
        took_s = time.monotonic() - self._since_s
        rest_s = self._processors.wanted() * (size / self._bytes_a_second - took_s)
        if rest_s > 0.0 and not self._hurries():
            time.sleep(rest_s)
        self._since_s = time.monotonic()
