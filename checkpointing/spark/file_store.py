"""Looking at and checking files on this machine: listings, remembered checksums, verified copies."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from checkpointing.spark.checksums import checksum_of
from checkpointing.storage.checksums import checking

_CHUNK = 1 << 20
_KEPT = 100_000


class FileChecksums:
    """Remembered by inode, modification time and size of each file: Spark renames and never rewrites in place."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: Path) -> str:
        """Any thread."""
        return self.known(path) or self.learn(path, checksum_of(path))

    def known(self, path: Path) -> str | None:
        """Without reading the file."""
        with self._lock:
            return self._known.get(_key(path))

    def learn(self, path: Path, checksum: str) -> str:
        """What somebody else has read of the file."""
        key = _key(path)
        with self._lock:
            self._known[key] = checksum
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return checksum


def _key(path: Path) -> tuple[int, int, int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def copy_verified(source: Path, target: Path, size: int, checksum: str) -> None:
    """Copy and check; ValueError when the bytes are not the ones promised."""
    target.parent.mkdir(parents=True, exist_ok=True)
    found = checking(checksum)
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK):
            found.update(chunk)
            writer.write(chunk)
        written = writer.tell()
    if written != size or found.checksum() != checksum:
        raise ValueError(f"{source} is damaged: {written} bytes with checksum {found.checksum()}")
