"""The guard finds all file system calls on a job manager's event loop that could hang."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from checkpointing.durable_files import sync, write_durably
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.locations import canonical
from tests.checkpointing.jobs.loop_guard import watched_loop


async def called_on_the_loop(work: Callable[[], object]) -> list[str]:
    """Let the event loop call `work`. Return the first line of each of the guard's findings."""
    with watched_loop() as calls:
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_soon(work)
        loop.call_soon(done.set)
        await done.wait()
    return [call.splitlines()[0] for call in calls]


@pytest.mark.parametrize(
    ("work", "event"),
    [
        (Path.exists, "os.stat"),
        (Path.is_symlink, "os.stat"),
        (os.path.islink, "os.lstat"),
        (Path.resolve, "os.lstat"),
        (Path.read_bytes, "open"),
        (Path.unlink, "os.remove"),
    ],
)
async def test_calls_of_the_loop_are_found(tmp_path: Path, work: Callable[[Path], object], event: str) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert f"{event} {file}" in await called_on_the_loop(partial(work, file))


async def test_syncs_and_listings_on_the_loop_are_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "os.fsync" in str(await called_on_the_loop(partial(sync, tmp_path)))
    assert "os.listdir" in str(await called_on_the_loop(partial(LocalFiles().names, str(tmp_path))))
    assert "os.rename" in str(await called_on_the_loop(partial(write_durably, tmp_path / "record", "x")))


async def test_other_threads_and_calls_without_file_access_are_not_reported(tmp_path: Path) -> None:
    with watched_loop() as calls:
        await asyncio.to_thread((tmp_path / "x").write_text, "x")
        await asyncio.to_thread(os.stat, tmp_path)
    assert calls == []
    assert await called_on_the_loop(lambda: canonical("/a/b/")) == []
    assert await called_on_the_loop(Path("/proc/self/cmdline").read_bytes) == []


async def test_calls_are_restored_after_the_guard() -> None:
    before = (os.stat, os.lstat, os.fsync)
    with watched_loop():
        assert os.stat is not before[0]
    assert (os.stat, os.lstat, os.fsync) == before
