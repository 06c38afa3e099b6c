"""Reading stops and continues anywhere in a log, with every codec, without losing or repeating a line."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path

import pytest

from checkpointing.eventlogs.codecs import LONGEST_LINE, Damaged, lines
from tests.checkpointing.eventlogs.logs import compressed

CODECS = ["", "zstd", "lz4", "snappy"]
TEXT = [f"line {number} ".encode() * (1 + number % 7) for number in range(12)]


def stream(codec: str, units: int = 4) -> bytes:
    """Return flushes of three lines. Blocks of LZ4 and Snappy end in the middle of lines."""
    flushes = [b"".join(line + b"\n" for line in TEXT[at : at + 3]) for at in range(0, 12, 3)][:units]
    return b"".join(compressed(codec, flush, is_first=not index, block=50) for index, flush in enumerate(flushes))


def read_on(codec: str, content: bytes, position: int, skipped: int) -> tuple[list[bytes], int, int]:
    found = []
    start = position
    for line in lines(codec, content[start:], skipped):
        found += [line.text] if line.text else []
        position, skipped = start + line.position, line.skipped
    return found, position, skipped


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_continued_with_the_next_line(codec: str) -> None:
    content = stream(codec)
    for cut in range(len(content) + 1):
        first, position, skipped = read_on(codec, content[:cut], 0, 0)
        assert first == TEXT[: len(first)]
        rest, position, skipped = read_on(codec, content, position, skipped)
        assert [*first, *rest] == TEXT
        assert (position, skipped) == (len(content), 0)


@pytest.mark.parametrize("codec", CODECS)
def test_reading_in_steps_of_a_few_bytes_gives_the_same_lines(codec: str) -> None:
    content = stream(codec)
    found, position, skipped = [], 0, 0
    for end in range(0, len(content) + 7, 7):
        more, position, skipped = read_on(codec, content[:end], position, skipped)
        found += more
    assert found == TEXT


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damage_raises_after_the_lines_before_it(codec: str) -> None:
    content = stream(codec, 2) + b"garbage" * 100
    found: list[bytes] = []
    with pytest.raises(Damaged):
        found.extend(line.text for line in lines(codec, content) if line.text)
    assert found == TEXT[: len(found)]
    assert len(found) >= 5


@pytest.mark.parametrize("codec", CODECS[1:])
def test_no_changed_byte_raises_anything_else(codec: str) -> None:
    content = stream(codec)
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 0xFF
        with suppress(Damaged):
            list(lines(codec, bytes(changed)))


def test_a_frame_that_expands_enormously_is_read_in_pieces() -> None:
    content = compressed("zstd", b"x" * (3 * LONGEST_LINE) + b"\nnext\n")
    found = [line.text for line in lines("zstd", content) if line.text]
    assert len(found[0]) < LONGEST_LINE + (2 << 20)
    assert found[1:] == [b"next"]


def test_lz4_reads_blocks_that_are_not_compressed_and_the_end_of_a_stream() -> None:
    raw = b"LZ4Block" + bytes([0x16]) + (5).to_bytes(4, "little") * 2 + bytes(4) + b"abcd\n"
    end = b"LZ4Block" + bytes([0x16]) + bytes(12)
    assert [line.text for line in lines("lz4", raw + end + raw) if line.text] == [b"abcd", b"abcd"]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_stream_that_spark_wrote_is_read(codec: str) -> None:
    """Spark 4.3 wrote it with three flushes, of 3, 900 and 3 lines."""
    content = base64.b64decode(json.loads(Path(__file__).with_name("spark_4_3_codecs.json").read_text())[codec])
    expected = [
        f'{{"Event":"flush {flush} {"=" * 50} {line // 50}"}}'.encode()
        for flush in range(3)
        for line in range(900 if flush == 1 else 3)
    ]
    first, position, skipped = read_on(codec, content[: len(content) // 2], 0, 0)
    rest, position, _ = read_on(codec, content, position, skipped)
    assert [*first, *rest] == expected
    assert position == len(content)
