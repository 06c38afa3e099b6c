"""Both kinds of checksums, computed from pieces of any size."""

from __future__ import annotations

import hashlib
import io
import os
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.storage.checksums import checking, checksum_of, of_sums, sums_of
from checkpointing.storage.files import LocalFiles

CONTENT = os.urandom(5000)


def crc32_kind(content: bytes) -> str:
    """Return the checksum as the manifest's format defines it."""
    sums = [zlib.crc32(content[at : at + 512]).to_bytes(4, "big") for at in range(0, len(content), 512)]
    return "crc32-" + hashlib.sha256(b"".join(sums)).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 5000], ids=str)
def test_all_ways_to_compute_a_checksum_agree(size: int) -> None:
    content = CONTENT[:size]
    assert checksum_of(io.BytesIO(content), crc32_kind(b"")) == crc32_kind(content) == of_sums(sums_of(content))
    assert checksum_of(io.BytesIO(content), "0" * 64) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("cuts", [[0, 1, 2, 513, 5000], [0, 512, 1024, 5000], [0, 0, 4999, 5000], [0, 511, 1100, 5000]])
@pytest.mark.parametrize("like", [crc32_kind(b""), "0" * 64], ids=["crc32", "sha256"])
def test_the_pieces_do_not_matter(like: str, cuts: list[int]) -> None:
    found = checking(like)
    for begin, end in pairwise(cuts):
        found.update(CONTENT[begin:end])
    assert found.checksum() == found.checksum() == checksum_of(io.BytesIO(CONTENT), like)


def test_each_changed_bit_changes_the_checksum() -> None:
    known = crc32_kind(CONTENT)
    for at in (0, 511, 512, 2500, 4999):
        changed = bytearray(CONTENT)
        changed[at] ^= 0x10
        assert checksum_of(io.BytesIO(changed), known) != known


@pytest.mark.parametrize("like", ["", "crc32-"])
def test_reading_a_large_file_shows_progress_with_each_piece(tmp_path: Path, like: str) -> None:
    """Therefore slow storage does not count as hanging storage."""
    file, signs = tmp_path / "large", []
    file.write_bytes(bytes(3 << 20))
    files = LocalFiles()
    for read in (lambda: files.checksum(str(file), like), lambda: files.get(str(file), tmp_path / "copy", like)):
        signs.clear()
        (tmp_path / "copy").unlink(missing_ok=True)
        in_daemon_thread(read, "it", lambda: signs.append(None)).result(60)
        assert len(signs) >= 3
