"""Limits the size of the driver's log, so that a program's output does not fill the disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from checkpointing.clock import Clock

LIMIT_BYTES = 64 * 1024 * 1024
_KEPT_BYTES = 1024 * 1024
_LOOK_S = 5.0


class LogLimit:
    """Keeps a log file below a size limit. `enforce` is cheap: it checks the size at most every five seconds.

    Writers open the log in append mode, so after a truncation they continue at its start.
    """

    def __init__(self, log: Path, clock: Clock, limit_bytes: int = LIMIT_BYTES) -> None:
        self._log = log
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._next_check_s = clock.monotonic()

    def enforce(self) -> None:
        """If the log is past the limit, move its last megabyte to `<log>.1` and empty it. Older output is deleted."""
        if self._clock.monotonic() < self._next_check_s:
            return
        self._next_check_s = self._clock.monotonic() + _LOOK_S
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > self._limit_bytes:
                self._cut()

    def _cut(self) -> None:
        with self._log.open("rb") as log:
            log.seek(-_KEPT_BYTES, os.SEEK_END)
            kept = log.read(_KEPT_BYTES)
        self._log.with_name(self._log.name + ".1").write_bytes(kept)
        os.truncate(self._log, 0)
