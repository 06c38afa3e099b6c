"""Simulated power cuts show every possible result of a missing sync, and no impossible one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.power_cut import Disk


def synced(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def found(root: Path, work: Callable[[], None], *, when_over: bool = True) -> set[str | None]:
    """Return the possible contents of `root`/file after a power cut: after the work, or at any moment."""
    disk, file = Disk(root), root / "file"
    with disk.recorded():
        work()
    return {file.read_text() if file.exists() else None for cut in disk.cuts() if cut.is_over or not when_over}


def test_a_file_that_was_only_written_may_be_missing_empty_or_cut_off(tmp_path: Path) -> None:
    assert found(tmp_path, lambda: (tmp_path / "file").write_text("new!") and None) == {None, "", "ne", "new!"}


def test_a_synced_file_may_be_missing_until_its_directory_is_synced(tmp_path: Path) -> None:
    def write() -> None:
        (tmp_path / "file").write_text("new!")
        synced(tmp_path / "file")

    assert found(tmp_path, write) == {None, "new!"}


def test_a_file_survives_after_both_syncs(tmp_path: Path) -> None:
    def write() -> None:
        (tmp_path / "file").write_text("new!")
        synced(tmp_path / "file")
        synced(tmp_path)

    assert found(tmp_path, write) == {"new!"}
    assert found(tmp_path, write, when_over=False) >= {"new!"}


@pytest.mark.parametrize(
    ("syncs_bytes", "syncs_name", "states"),
    [
        (True, True, {"new!"}),
        (True, False, {"old", "new!"}),
        (False, True, {"", "ne", "new!"}),
        (False, False, {"old", "", "ne", "new!"}),
    ],
)
def test_a_rename_is_atomic_and_keeps_synced_content(
    tmp_path: Path, syncs_bytes: bool, syncs_name: bool, states: set[str]
) -> None:
    (tmp_path / "file").write_text("old")

    def write() -> None:
        (tmp_path / "temporary").write_text("new!")
        if syncs_bytes:
            synced(tmp_path / "temporary")
        (tmp_path / "temporary").replace(tmp_path / "file")
        if syncs_name:
            synced(tmp_path)

    assert found(tmp_path, write) == states


def test_a_sync_after_the_rename_is_too_late(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    def write() -> None:
        (tmp_path / "temporary").write_text("new!")
        (tmp_path / "temporary").replace(tmp_path / "file")
        synced(tmp_path / "file")
        synced(tmp_path)

    assert found(tmp_path, write) == {"new!"}
    assert found(tmp_path, write, when_over=False) >= {"", "ne"}


def test_files_in_a_new_directory_are_lost_with_its_unsynced_name(tmp_path: Path) -> None:
    def write() -> None:
        directory = tmp_path / "new"
        directory.mkdir()
        (directory / "file").write_text("x")
        synced(directory / "file")
        synced(directory)

    disk = Disk(tmp_path)
    with disk.recorded():
        write()
    assert {(tmp_path / "new" / "file").exists() for cut in disk.cuts() if cut.is_over} == {False, True}


def test_a_removal_may_be_forgotten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    assert found(tmp_path, (tmp_path / "file").unlink) == {None, "old"}


def test_a_file_with_the_inode_of_a_removed_one_is_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("gone")

    def write() -> None:
        synced(tmp_path / "gone")
        (tmp_path / "gone").unlink()
        (tmp_path / "file").write_text("new!")
        synced(tmp_path)

    assert found(tmp_path, write) == {"", "ne", "new!"}


def test_state_outside_the_disk_is_recorded_at_each_cut(tmp_path: Path) -> None:
    beside: list[str] = []
    disk = Disk(tmp_path, lambda: tuple(beside))
    with disk.recorded():
        (tmp_path / "first").touch()
        beside.append("known")
        (tmp_path / "second").touch()
    states = {((tmp_path / "second").exists(), cut.beside) for cut in disk.cuts()}
    assert states == {(False, ()), (False, ("known",)), (True, ("known",))}
