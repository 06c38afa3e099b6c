"""Looking at and checking files on this machine: listings, remembered checksums, verified copies."""

from __future__ import annotations

from pathlib import Path

from checkpointing.checkpoint_location.checksums import checksum_of
from checkpointing.checkpoint_location.file_memory import FileMemory
from checkpointing.storage.checksums import checking

_CHUNK = 1 << 20


class FileChecksums:
    """Remembered: Spark renames and never rewrites in place."""

    def __init__(self) -> None:
        self._known: FileMemory[str] = FileMemory()

    def of(self, path: Path) -> str:
        """Any thread."""
        return self.known(path) or self.learn(path, checksum_of(path))

    def known(self, path: Path) -> str | None:
        """Without reading the file."""
        return self._known.get(path.stat())

    def learn(self, path: Path, checksum: str) -> str:
        """What somebody else has read of the file."""
        self._known.learn(path.stat(), checksum)
        return checksum


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
