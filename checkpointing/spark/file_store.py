"""Looking at and checking files on this machine: listings, remembered checksums, verified copies."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from pathlib import Path

_CHUNK = 1 << 20
_HASHES_KEPT = 100_000


class FileHashes:
    """SHA-256 of files, remembered by inode, modification time and size: Spark renames and never rewrites in place."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: Path) -> str:
        """Any thread."""
        return self.known(path) or self.learn(path, sha256_of(path))

    def known(self, path: Path) -> str | None:
        """Without reading the file."""
        with self._lock:
            return self._known.get(_key(path))

    def learn(self, path: Path, sha256: str) -> str:
        """What somebody else has read of the file."""
        key = _key(path)
        with self._lock:
            self._known[key] = sha256
            if len(self._known) > _HASHES_KEPT:
                self._known.popitem(last=False)
        return sha256


def _key(path: Path) -> tuple[int, int, int, int]:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_verified(source: Path, target: Path, size: int, sha256: str) -> None:
    """Copy and check; ValueError when the bytes are not the ones promised."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            writer.write(chunk)
        written = writer.tell()
    if written != size or digest.hexdigest() != sha256:
        raise ValueError(f"{source} is damaged: {written} bytes with checksum {digest.hexdigest()}")
