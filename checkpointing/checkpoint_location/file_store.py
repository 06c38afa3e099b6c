"""Local files that are renamed and never written in place: cached checksums, verified copies."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from checkpointing.checkpoint_location.checksums import checksum_of
from checkpointing.storage import read_metadata
from checkpointing.storage.checksums import checking

log = logging.getLogger(__name__)

_KEPT = 100_000
_CHUNK = 1 << 20


class FileChecksums:
    """A cache of checksums by inode, modification time and size, so for all names of a file. Usable on any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int, int], str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: Path) -> str:
        return self.known(path) or self.learn(path, checksum_of(path))

    def known(self, path: Path) -> str | None:
        """Return the cached checksum, or None, without reading the file."""
        file = _identity(path)
        with self._lock:
            return self._known.get(file)

    def learn(self, path: Path, checksum: str) -> str:
        """Store a checksum that other code has computed."""
        file = _identity(path)
        with self._lock:
            self._known[file] = checksum
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return checksum


def _identity(path: Path) -> tuple[int, int, int, int]:
    file = path.stat()
    return file.st_dev, file.st_ino, file.st_mtime_ns, file.st_size


def copy_verified(source: Path, target: Path, size: int, checksum: str) -> None:
    """Copy and check. Raise ValueError if size or checksum is wrong."""
    target.parent.mkdir(parents=True, exist_ok=True)
    found = checking(checksum)
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK):
            found.update(chunk)
            writer.write(chunk)
        written = writer.tell()
    if written != size or found.checksum() != checksum:
        raise ValueError(
            f"{source} is damaged: it has {written} bytes with checksum {found.checksum()}, "
            f"not {size} bytes with checksum {checksum}"
        )


def known_checksums(directory: str | None, locations: Mapping[str, Path]) -> FileChecksums:
    """Return the checksums of the snapshot in `directory`, for the queries' files at `locations` (by query).

    A driver caches the checksums of files that it has read. Without this function, the next driver would read the whole
    state for its first checkpoint. Only RocksDB's SST files are included, by far the most bytes: their names are unique
    and never written again. If the snapshot cannot be read, the driver reads its files as usual.
    """
    checksums = FileChecksums()
    if directory is None:
        return checksums
    try:
        checkpoint = read_metadata(directory)
    except OSError as error:
        log.info("every file is read again: %s", error)
        return checksums
    for operator in checkpoint.operators:
        for file in (file for subtask in operator.subtasks for file in subtask.files):
            if operator.query in locations and file.path.endswith(".sst"):
                _learn(checksums, locations[operator.query] / file.path, file.size, file.checksum)
    return checksums


def _learn(checksums: FileChecksums, path: Path, size: int, checksum: str) -> None:
    try:
        is_same = path.stat().st_size == size
    except FileNotFoundError:
        return
    if is_same:
        checksums.learn(path, checksum)
