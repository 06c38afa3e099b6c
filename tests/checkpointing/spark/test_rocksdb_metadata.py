"""Whole RocksDB states of one Spark version are converted for another version."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from checkpointing.checkpoint_location.checksums import check_file, write_sums
from checkpointing.spark.rocksdb_metadata import fit_metadata

ID = "_a7816e3d-e4ae-4d60-836d-49a7b2ce7a13"
FORMAT_1, FORMAT_2 = "2.zip", f"2{ID}.zip"
CONTENT = b'\n{"sstFiles":[],"logFiles":[],"numKeys":3}'


def whole_state(location: Path, name: str, version: bytes) -> Path:
    path = location / "state" / "0" / "1" / name
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("MANIFEST-000005", b"m" * 900)
        archive.writestr("metadata", version + CONTENT)
    write_sums(path)
    return path


@pytest.mark.parametrize(
    ("name", "written", "spark", "wanted"),
    [
        pytest.param(FORMAT_2, b"v1", "4.0.5", b"v2", id="4.0 expects the checkpoint format"),
        pytest.param(FORMAT_1, b"v2", "4.0.5", b"v1", id="4.0 in format 1"),
        pytest.param(FORMAT_2, b"v2", "4.1.4", b"v1", id="4.1"),
        pytest.param(FORMAT_2, b"v2", "4.3.0", b"v1", id="4.3"),
        pytest.param(FORMAT_2, b"v3", "4.3.0", b"v3", id="a version that is not known is left to Spark"),
    ],
)
def test_a_complete_state_gets_the_version_that_this_spark_reads(
    tmp_path: Path, name: str, written: bytes, spark: str, wanted: bytes
) -> None:
    path = whole_state(tmp_path, name, written)
    snapshot = tmp_path / "snapshot.zip"
    os.link(path, snapshot)
    before = snapshot.read_bytes()
    fit_metadata(tmp_path, spark)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("metadata") == wanted + CONTENT
        assert archive.read("MANIFEST-000005") == b"m" * 900
        assert len(archive.namelist()) == 2
    check_file(tmp_path, str(path.relative_to(tmp_path)))
    assert snapshot.read_bytes() == before, "the snapshot's own file has changed"


def test_a_state_that_fits_is_not_written_again(tmp_path: Path) -> None:
    path = whole_state(tmp_path, FORMAT_2, b"v2")
    before = path.stat()
    fit_metadata(tmp_path, "4.0.5")
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("content", [b"no archive", b""])
def test_a_damaged_state_is_named(tmp_path: Path, content: bytes) -> None:
    path = whole_state(tmp_path, FORMAT_2, b"v2")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"2_a7816e3d.* is not a whole RocksDB state"):
        fit_metadata(tmp_path, "4.3.0")
