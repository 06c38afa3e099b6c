"""What a process knows of files that are renamed and linked, and never written in place."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Generic, TypeVar

Known = TypeVar("Known")

_KEPT = 100_000


class FileMemory(Generic[Known]):
    """By inode, modification time and size, so under each of a file's names. Of so many files; any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int, int], Known] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file: os.stat_result) -> Known | None:
        with self._lock:
            return self._known.get(_identity(file))

    def learn(self, file: os.stat_result, what: Known) -> None:
        with self._lock:
            self._known[_identity(file)] = what
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)


def _identity(file: os.stat_result) -> tuple[int, int, int, int]:
    return file.st_dev, file.st_ino, file.st_mtime_ns, file.st_size
