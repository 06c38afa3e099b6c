"""A file that cannot be linked is copied, by the kernel or by Waymark."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointing.storage import files
from checkpointing.storage.files import LocalFiles

CHUNK = files._CHUNK
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 4103]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "000213.sst"


def written(path: Path, size: int) -> bytes:
    """Write a file whose pages all differ, and return its content."""
    content = b"".join(number.to_bytes(8) for number in range(size // 8 + 1))[:size]
    path.write_bytes(content)
    return content


def names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


def shared(directory: Path) -> Path:
    (directory / "shared").mkdir()
    return directory / "shared"


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)


def nothing_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_copying(*_: object) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", no_copying)


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("without", [None, nothing_by_the_kernel])
def test_a_copy_has_every_byte(
    source: Path,
    tmp_path: Path,
    size: int,
    without: Callable[[pytest.MonkeyPatch], None] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if without is not None:
        without(monkeypatch)
    content = written(source, size)
    LocalFiles().put(source, str(shared(tmp_path) / "x"))
    assert (tmp_path / "shared" / "x").read_bytes() == content
    assert names(tmp_path / "shared") == ["x"]
    assert (tmp_path / "shared" / "x").stat().st_ino != source.stat().st_ino


@pytest.mark.parametrize("size", SIZES)
def test_a_copy_in_another_file_system_has_every_byte(source: Path, other_file_system: Path, size: int) -> None:
    content = written(source, size)
    LocalFiles().put(source, str(other_file_system / "x"))
    assert (other_file_system / "x").read_bytes() == content
    assert names(other_file_system) == ["x"]


@pytest.mark.parametrize("left", [0, CHUNK // 2 + 7, CHUNK])
def test_a_file_truncated_during_the_copy_is_not_a_complete_copy(
    source: Path, tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = written(source, 4 * CHUNK)
    copy_file_range = os.copy_file_range

    def cut_short(*args: Any) -> int:
        os.truncate(source, left)
        return copy_file_range(*args)

    monkeypatch.setattr(os, "copy_file_range", cut_short)
    monkeypatch.setattr(files, "_linked", lambda *_: False)
    with pytest.raises(OSError, match=f"were copied instead of {len(content)}"):
        LocalFiles().put(source, str(shared(tmp_path) / "x"))
    assert names(tmp_path / "shared") == []


@pytest.mark.usefixtures("no_links")
def test_a_full_disk_leaves_no_files(source: Path, tmp_path: Path) -> None:
    """The process's file size limit simulates a full disk: a write is partial, and the next one fails."""
    written(source, 3 * CHUNK)
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK + CHUNK // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            LocalFiles().put(source, str(shared(tmp_path) / "x"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path / "shared") == []
