"""Files of this machine are brought to the disk once, and again whenever it could lack something of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointing.storage.files import LocalFiles
from tests.checkpointing.storage.test_files_conformance import local

SyncedSince = Callable[[], list[str]]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> SyncedSince:
    """What went to the disk since it was last asked, by the names under which it was opened."""
    seen: list[str] = []
    fsync = os.fsync

    def sees(descriptor: int) -> None:
        fsync(descriptor)
        seen.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def told() -> list[str]:
        names, seen[:] = list(seen), []
        return names

    monkeypatch.setattr(os, "fsync", sees)
    return told


def test_a_file_is_synced_once_however_many_names_it_has(tmp_path: Path, synced: SyncedSince) -> None:
    files, source = LocalFiles(), local(tmp_path, b"state")
    first, second = str(tmp_path / "savepoint-1" / "x"), str(tmp_path / "savepoint-2" / "x")
    files.put(source, first)
    files.make_durable([first])
    files.put(source, second)
    assert Path(first).samefile(second)
    files.make_durable([second, first])
    assert synced() == [first]


def test_each_process_syncs_for_itself(tmp_path: Path, synced: SyncedSince) -> None:
    """Whoever brought a file may have died before it was durable."""
    path = str(tmp_path / "shared" / "x")
    for _ in range(2):
        files = LocalFiles()
        files.put(local(tmp_path, b"state"), path)
        files.make_durable([path])
        assert synced() == [path]


def test_a_directory_is_synced_whenever_it_is_told_to_be(tmp_path: Path, synced: SyncedSince) -> None:
    files, directory = LocalFiles(), str(tmp_path / "shared")
    for name in ("x", "y"):
        files.put(local(tmp_path, b"state", name), f"{directory}/{name}")
        files.make_durable([directory])
        assert synced() == [directory]


@pytest.mark.parametrize("content", [b"other", b"longer than before"])
def test_what_took_the_place_of_a_file_is_synced(tmp_path: Path, synced: SyncedSince, content: bytes) -> None:
    files, path = LocalFiles(), str(tmp_path / "shared" / "x")
    files.put(local(tmp_path, b"state"), path)
    files.make_durable([path])
    files.put(local(tmp_path, content, "another"), path)
    synced()
    files.make_durable([path])
    assert synced() == [path]


def test_a_file_that_was_written_to_is_synced(tmp_path: Path, synced: SyncedSince) -> None:
    files, path = LocalFiles(), tmp_path / "timelines"
    for content in (b"a", b"ab"):
        with path.open("ab") as file:
            file.write(content)
        files.make_durable([str(path)])
        assert synced() == [str(path)]


def test_a_file_that_the_disk_did_not_take_is_synced(
    tmp_path: Path, synced: SyncedSince, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = LocalFiles(), str(tmp_path / "shared" / "x")
    files.put(local(tmp_path, b"state"), path)

    def refuses(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuses)
        with pytest.raises(OSError, match="Input/output error"):
            files.make_durable([path])
    files.make_durable([path])
    assert synced() == [path]
