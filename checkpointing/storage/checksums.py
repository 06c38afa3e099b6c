"""The checksums by which a manifest identifies a file's content.

    <64 hex digits>          the SHA-256 of the content
    crc32-<64 hex digits>    the SHA-256 of the CRC-32s of each 512 bytes of it, big-endian: Hadoop's local file system
                        stores these CRC-32s next to each file that it writes

The second kind is known without reading the content, and it covers the bytes as they were written, not as they are
later. It is used for large files only: for a checkpoint of ten gigabytes of state, eighty megabytes are read. Both
kinds can name a file and detect damage. A manifest does not protect against forgery anyway (`metadata`).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from checkpointing.daemon_threads import progressed

STEP = 512
_CRC32 = "crc32-"
_CHUNK = 1 << 20


class Checking(Protocol):
    """Computes the checksum of a content that it gets in pieces."""

    def update(self, piece: bytes) -> None: ...

    def checksum(self) -> str: ...


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_sums(sums: bytes) -> str:
    """Return the checksum of the second kind for a content whose CRC-32s are `sums`."""
    return _CRC32 + hashlib.sha256(sums).hexdigest()


def sums_of(content: bytes, step: int = STEP) -> bytes:
    """Return the CRC-32 of each `step` bytes. The last piece may be shorter."""
    whole = len(content) // step
    parts: Iterable[bytes] = struct.unpack_from(f"{step}s" * whole, content)
    sums = struct.pack(f">{whole}I", *map(zlib.crc32, parts))
    rest = content[whole * step :]
    return sums + zlib.crc32(rest).to_bytes(4, "big") if rest else sums


def checking(like: str) -> Checking:
    """Return an object that computes a checksum of the same kind as `like`."""
    return _Crc32() if like.startswith(_CRC32) else _Sha256()


def checksum_of(file: BinaryIO, like: str) -> str:
    """Return the checksum of the rest of the file, of the same kind as `like`."""
    found = checking(like)
    while piece := file.read(_CHUNK):
        found.update(piece)
        progressed()
    return found.checksum()


class _Sha256:
    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def update(self, piece: bytes) -> None:
        self._digest.update(piece)

    def checksum(self) -> str:
        return self._digest.hexdigest()


class _Crc32:
    def __init__(self) -> None:
        self._sums = hashlib.sha256()
        self._begun = b""

    def update(self, piece: bytes) -> None:
        content = self._begun + piece if self._begun else piece
        end = len(content) // STEP * STEP
        self._begun = content[end:]
        self._sums.update(sums_of(content[:end]))

    def checksum(self) -> str:
        whole = self._sums.copy()
        whole.update(sums_of(self._begun))
        return _CRC32 + whole.hexdigest()
