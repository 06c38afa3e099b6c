"""Whether a file is intact, checked with the checksum files of Hadoop and Spark."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from pathlib import Path

import pytest

from checkpointing.checkpoint_location.checksums import check_file, checksum_of, sums_path
from checkpointing.storage.checksums import checksum_of as file_checksum

STEP = 512


def written(directory: Path, name: str, content: bytes) -> Path:
    """Write a file with a checksum file, as Hadoop's file system does."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    sums = b"".join(zlib.crc32(content[at : at + STEP]).to_bytes(4, "big") for at in range(0, len(content), STEP))
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\x00" + struct.pack(">i", STEP) + sums)
    return path


@pytest.mark.parametrize("size", [0, 1, STEP, STEP + 1, (5 << 20) + 3], ids=str)
def test_a_complete_file_of_any_size_passes(tmp_path: Path, size: int) -> None:
    written(tmp_path, "1.sst", os.urandom(size))
    check_file(tmp_path, "1.sst")


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1, (3 << 20) - 7], ids=str)
def test_a_large_sst_file_is_checked_unread_by_hadoops_crc_file(tmp_path: Path, size: int) -> None:
    path = written(tmp_path, "1.sst", os.urandom(size))
    result = checksum_of(path)
    with path.open("rb") as file:
        assert file_checksum(file, result) == result

    path.write_bytes(bytes(size))
    assert checksum_of(path) == result, "it was read"
    with path.open("rb") as file:
        assert file_checksum(file, result) != result, "and so it shows that it is not what was written"


@pytest.mark.parametrize(
    ("name", "size", "sums"),
    [
        ("1.sst", (1 << 20) - 1, None),
        ("1.delta", 1 << 20, None),
        ("1.sst", 1 << 20, b""),
        ("1.sst", 1 << 20, b"crc\x00" + struct.pack(">i", STEP)),
        ("1.sst", 1 << 20, b"crc\x00" + struct.pack(">i", 1024) + bytes(4096)),
        ("1.sst", 1 << 20, b"CRC\x00" + struct.pack(">i", STEP) + bytes(8192)),
    ],
    ids=["small", "another kind of file", "empty", "cut off", "of other lengths", "not Hadoop's"],
)
def test_other_files_are_identified_by_sha256(tmp_path: Path, name: str, size: int, sums: bytes | None) -> None:
    path = written(tmp_path, name, content := os.urandom(size))
    if sums is not None:
        sums_path(path).write_bytes(sums)
    assert checksum_of(path) == hashlib.sha256(content).hexdigest()


def test_a_file_without_checksums_is_checked_by_its_sha256(tmp_path: Path) -> None:
    path = written(tmp_path, "1.sst", content := os.urandom(2 << 20))
    sums_path(path).unlink()
    assert checksum_of(path) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("at", [0, 700, -1], ids=["first byte", "within", "last byte"])
@pytest.mark.parametrize("size", [5000, (5 << 20) + 3], ids=["small", "large"])
def test_a_changed_byte_is_detected(tmp_path: Path, size: int, at: int) -> None:
    content = os.urandom(size)
    path = written(tmp_path, "1.sst", content)
    changed = bytearray(content)
    changed[at] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"1\.sst is damaged: its content does not match its checksum"):
        check_file(tmp_path, "1.sst")


def test_a_changed_size_is_detected_before_anything_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, "1.sst", os.urandom(2000))
    path.write_bytes(path.read_bytes()[:-600])
    with pytest.raises(ValueError, match="it has 1400 bytes, which do not match the number of its checksums"):
        check_file(tmp_path, "1.sst")


def test_damaged_checksums_are_reported(tmp_path: Path) -> None:
    path = written(tmp_path, "1.sst", b"content")
    path.with_name(".1.sst.crc").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"the checksums of 1\.sst are damaged"):
        check_file(tmp_path, "1.sst")


def test_a_restored_file_is_checked_against_the_size_that_spark_recorded(tmp_path: Path) -> None:
    (tmp_path / "3.changelog").write_bytes(b"12345")
    check_file(tmp_path, "3.changelog")
    (tmp_path / "3.changelog.crc").write_text(json.dumps({"algorithm": "CRC32C", "value": 1, "mainFileSize": 5}))
    check_file(tmp_path, "3.changelog")
    (tmp_path / "3.changelog").write_bytes(b"1234")
    with pytest.raises(ValueError, match="it has 4 bytes instead of 5"):
        check_file(tmp_path, "3.changelog")


@pytest.mark.parametrize(
    "content",
    ["", "v1", 'v1\n{"batch', '{"batchWatermarkMs":0}', 'v1\n{"batchWatermarkMs":0}\n{"logOffset":', "v1\n\n"],
)
def test_a_log_that_is_cut_off_is_noticed_without_any_checksum(tmp_path: Path, content: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(content)
    with pytest.raises(ValueError, match="offsets/3 is damaged"):
        check_file(tmp_path, "offsets/3")


def test_the_offset_format_of_a_source_is_not_checked(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n-\nup to here\n17')
    check_file(tmp_path, "offsets/3")
