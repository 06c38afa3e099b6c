"""Read whole lines of an event log, compressed or not, from any place where reading stopped before.

A compressed log consists of units that can be decompressed alone: Spark ends a frame of Zstandard whenever it flushes,
and LZ4 and Snappy have blocks. A place is the start of a unit, and the number of its decompressed bytes that were read.
Units that are not complete yet are left for later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

PLAIN = ""
CODECS = frozenset({PLAIN, "zstd", "lz4", "snappy"})
# A longer line is cut, and is then not valid JSON. Only query plans are this long.
LONGEST_LINE = 16_000_000
_PIECE = 1 << 20
_LARGEST_BLOCK = 64 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4, _LZ4_HEADER, _LZ4_RAW, _LZ4_COMPRESSED = b"LZ4Block", 21, 0x10, 0x20
_SNAPPY, _SNAPPY_HEADER = b"\x82SNAPPY\x00", 16


class Damaged(ValueError):
    """The content is not what the codec writes."""


class Line(NamedTuple):
    """A line, and the place after it, relative to the content. The last one of a unit may be empty."""

    text: bytes
    position: int
    skipped: int


class _Unit(NamedTuple):
    start: int
    end: int
    pieces: Iterable[bytes]


def lines(codec: str, content: bytes, skipped: int = 0) -> Iterator[Line]:
    """Yield the whole lines of the content, which begins with a unit. `skipped`: bytes of this unit that were read.

    Raises:
        Damaged: after the lines before the damage.
    """
    try:
        yield from _lines(codec, content, skipped)
    except (OSError, pa.ArrowException, IndexError) as error:
        raise Damaged(str(error)) from error


def _lines(codec: str, content: bytes, skipped: int) -> Iterator[Line]:
    tail = bytearray()
    for unit in _units(codec, content):
        offset = 0
        for whole in unit.pieces:
            piece = whole[skipped:] if skipped else whole
            offset += len(whole) - len(piece)
            skipped -= min(skipped, len(whole))
            begin = 0
            while (newline := piece.find(b"\n", begin)) >= 0:
                text, begin = bytes(tail) + piece[begin:newline], newline + 1
                tail.clear()
                yield Line(text, *_place(codec, unit, offset + begin))
            if len(tail) < LONGEST_LINE:
                tail += piece[begin:]
            offset += len(piece)
        if not tail and codec != PLAIN:
            yield Line(b"", unit.end, 0)


def _place(codec: str, unit: _Unit, offset: int) -> tuple[int, int]:
    return (offset, 0) if codec == PLAIN else (unit.start, offset)


def _units(codec: str, content: bytes) -> Iterator[_Unit]:
    match codec:
        case "zstd":
            return _zstd_frames(content)
        case "lz4":
            return _lz4_blocks(content)
        case "snappy":
            return _snappy_blocks(content)
    return iter([_Unit(0, len(content), (content,))])


def _zstd_frames(content: bytes) -> Iterator[_Unit]:
    start = 0
    while (end := _end_of_frame(content, start)) is not None:
        yield _Unit(start, end, _decompressed(content[start:end]))
        start = end


def _end_of_frame(content: bytes, start: int) -> int | None:
    """Return the end of the frame, None if it is not complete. RFC 8878, section 3.1.1."""
    if not _ZSTD.startswith(content[start : start + 4]):
        raise Damaged("no frame of Zstandard")
    if len(content) < start + 5:
        return None
    descriptor = content[start + 4]
    is_single = descriptor >> 5 & 1
    size_field = (is_single, 2, 4, 8)[descriptor >> 6]
    at = start + 5 + (1 - is_single) + (0, 1, 2, 4)[descriptor & 3] + size_field
    is_last = False
    while not is_last:
        if len(content) < at + 3:
            return None
        header = int.from_bytes(content[at : at + 3], "little")
        is_last = bool(header & 1)
        is_repeated = header >> 1 & 3 == 1
        at += 3 + (1 if is_repeated else header >> 3)
    at += 4 * (descriptor >> 2 & 1)
    return at if at <= len(content) else None


def _decompressed(frame: bytes) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(frame), "zstd") as stream:
        while piece := stream.read(_PIECE):
            yield piece


def _lz4_blocks(content: bytes) -> Iterator[_Unit]:
    """Yield the blocks that LZ4BlockOutputStream of lz4-java writes."""
    at, codec = 0, pa.Codec("lz4_raw")
    while True:
        if not _LZ4.startswith(content[at : at + 8]):
            raise Damaged("no block of LZ4")
        start, at = at, at + _LZ4_HEADER
        if at > len(content):
            return
        method = content[start + 8] & 0xF0
        compressed, size = (int.from_bytes(content[start + i : start + i + 4], "little") for i in (9, 13))
        if method not in (_LZ4_RAW, _LZ4_COMPRESSED) or max(compressed, size) > _LARGEST_BLOCK:
            raise Damaged("no block of LZ4")
        data, at = content[at : at + compressed], at + compressed
        if at > len(content):
            return
        is_raw = method == _LZ4_RAW or not size  # an empty block ends a stream
        yield _Unit(start, at, (data if is_raw else codec.decompress(data, size, asbytes=True),))


def _snappy_blocks(content: bytes) -> Iterator[_Unit]:
    """Yield the blocks that SnappyOutputStream of snappy-java writes. Its header may stand before any of them."""
    at, codec = 0, pa.Codec("snappy")
    while True:
        start = at
        if content.startswith(_SNAPPY, at):
            at += _SNAPPY_HEADER
        length = int.from_bytes(content[at : at + 4], "big")
        at += 4
        if at > len(content) or (len(content) < start + len(_SNAPPY) and _SNAPPY.startswith(content[start:])):
            return
        if length > _LARGEST_BLOCK:
            raise Damaged("no block of Snappy")
        data, at = content[at : at + length], at + length
        if at > len(content):
            return
        yield _Unit(start, at, (codec.decompress(data, _snappy_size(data), asbytes=True),))


def _snappy_size(block: bytes) -> int:
    size = 0
    for index in range(5):
        size |= (block[index] & 0x7F) << 7 * index
        if not block[index] & 0x80:
            break
    if size > _LARGEST_BLOCK:
        raise Damaged("no block of Snappy")
    return size
