"""Where a file cannot be linked it is copied: from its own pages past the page cache, by the kernel, or by us."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointing.storage import files
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.giving_way import unhurried

PAGE, LEAST, PIPE = mmap.PAGESIZE, files._LEAST_HANDED_OVER, files._PIPE
SIZES = [0, 1, LEAST - 1, LEAST, LEAST + 1, PIPE - 1, PIPE, PIPE + PAGE, 2 * PIPE + PAGE + 7]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "000213.sst"


def written(path: Path, size: int) -> bytes:
    """No page of it is like another."""
    content = b"".join(number.to_bytes(8) for number in range(size // 8 + 1))[:size]
    path.write_bytes(content)
    return content


def names(directory: Path) -> list[str]:
    return [entry.name for entry in directory.iterdir()]


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)


def refuse_control(monkeypatch: pytest.MonkeyPatch, refused: int, flag: int, error: int) -> None:
    """`fcntl(_, refused, argument)` fails where `argument` has any of the bits of `flag`."""
    control = fcntl.fcntl

    def asked(file: Any, command: int, argument: int = 0) -> Any:
        if command == refused and argument & flag:
            raise OSError(error, os.strerror(error))
        return control(file, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", asked)


def no_direct_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that has none."""
    refuse_control(monkeypatch, fcntl.F_SETFL, os.O_DIRECT, errno.EINVAL)


def no_large_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who has many already."""
    refuse_control(monkeypatch, fcntl.F_SETPIPE_SZ, PIPE, errno.EPERM)


def nothing_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_copying(*_: object) -> int:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    no_direct_writes(monkeypatch)
    monkeypatch.setattr(os, "copy_file_range", no_copying)


def no_more_than_the_first_direct_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """And that one takes half of what it is given."""
    splice, left = os.splice, [PIPE // 2]

    def splices(source: int, target: int, count: int, **given: Any) -> int:
        if given:
            return splice(source, target, count, **given)
        if not left:
            raise OSError(errno.EINVAL, "Invalid argument")
        return splice(source, target, min(count, left.pop()))

    monkeypatch.setattr(os, "splice", splices)


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "without", [None, no_direct_writes, no_large_pipe, no_more_than_the_first_direct_write, nothing_by_the_kernel]
)
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
    LocalFiles().put(source, str(tmp_path / "shared" / "x"))
    assert (tmp_path / "shared" / "x").read_bytes() == content
    assert names(tmp_path / "shared") == ["x"]
    assert (tmp_path / "shared" / "x").stat().st_ino != source.stat().st_ino


@pytest.mark.parametrize("size", SIZES)
def test_a_copy_in_another_file_system_has_every_byte(source: Path, other_file_system: Path, size: int) -> None:
    content = written(source, size)
    LocalFiles().put(source, str(other_file_system / "x"))
    assert (other_file_system / "x").read_bytes() == content
    assert names(other_file_system) == ["x"]


def test_whole_pages_are_handed_over_and_nothing_more(source: Path, tmp_path: Path) -> None:
    content = written(source, PIPE + 3 * PAGE + 5)
    with source.open("rb") as reader, (tmp_path / "x").open("xb") as writer:
        handed_over = files._handed_over(reader.fileno(), writer.fileno(), len(content), unhurried)
        flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    if not handed_over:
        pytest.skip(f"the file system of {tmp_path} writes nothing past the page cache")
    assert handed_over == PIPE + 3 * PAGE
    assert (tmp_path / "x").read_bytes() == content[:handed_over]
    assert not flags & os.O_DIRECT, "what comes after it is no whole page"


@pytest.mark.parametrize("left", [0, PIPE // 2 + 7, PIPE, 2 * PIPE + 7])
def test_a_file_that_is_cut_short_meanwhile_is_no_whole_copy(
    source: Path, tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = written(source, 4 * PIPE)
    splice = os.splice

    def cut_short(*args: Any, **given: Any) -> int:
        moved = splice(*args, **given)
        os.truncate(source, left)
        return moved

    monkeypatch.setattr(os, "splice", cut_short)
    monkeypatch.setattr(files, "_linked", lambda *_: False)
    with pytest.raises(OSError, match=f"not the {len(content)} of"):
        LocalFiles().put(source, str(tmp_path / "shared" / "x"))
    assert names(tmp_path / "shared") == []


@pytest.mark.usefixtures("no_links")
def test_a_disk_that_takes_no_more_leaves_nothing(source: Path, tmp_path: Path) -> None:
    """By the limit of a process: as on a full disk, a write takes what fits, and the next one fails."""
    written(source, 3 * PIPE)
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PIPE + PIPE // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            LocalFiles().put(source, str(tmp_path / "shared" / "x"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path / "shared") == []
