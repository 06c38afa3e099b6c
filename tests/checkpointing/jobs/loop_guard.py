"""Find file system calls that a job manager makes on its event loop.

A hard mount whose server is gone answers no call. One such call on the loop stops every heartbeat, so that all drivers
end. Python's audit hook reports opening, listing, renaming and removing. It does not report `stat` and similar
functions, so the guard replaces them while it watches a loop.

Only calls of the job manager count. Calls of the tests and their fake drivers, which share the loop, do not count, nor
do calls of imports, tracebacks and coverage, which read source code. Calls below /proc, which is no storage, do not
count either.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tests import audit_hooks

_TESTS = str(Path(__file__).parents[2])
EVENTS = frozenset({
    "open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink",
    "os.truncate", "os.chmod", "os.chown", "os.utime", "fcntl.flock", "fcntl.lockf",
})  # fmt: skip
WITHOUT_EVENT = ("stat", "lstat", "readlink", "access", "statvfs", "fsync", "fdatasync")
_NOT_OURS = ("<frozen importlib", "/linecache.py", "/_pytest/", "/coverage/")

_watched: dict[int, list[str]] = {}
_hook_is_there = False


@contextlib.contextmanager
def watched_loop() -> Iterator[list[str]]:
    """Yield a list that receives each file system call of this thread during the block. Blocks may be nested."""
    global _hook_is_there
    if not _hook_is_there:
        audit_hooks.add(_audited)
        _hook_is_there = True
    thread = threading.get_ident()
    if thread in _watched:
        yield _watched[thread]
        return
    calls = _watched[thread] = []
    originals = {name: getattr(os, name) for name in WITHOUT_EVENT}
    for name, original in originals.items():
        setattr(os, name, _noting(name, original))
    try:
        yield calls
    finally:
        for name, original in originals.items():
            setattr(os, name, original)
        del _watched[thread]


def _audited(event: str, args: tuple[Any, ...]) -> None:
    if _watched and event in EVENTS:
        _note(event, args[0])


def _noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **more: Any) -> Any:
        _note(f"os.{name}", args[0])
        return original(*args, **more)

    return call


def _note(event: str, path: object) -> None:
    calls = _watched.get(threading.get_ident())
    if calls is None or os.fsdecode(path if isinstance(path, str | bytes | os.PathLike) else "").startswith("/proc/"):
        return
    frames = list(_frames(sys._getframe(1)))
    if not any(_is_exempt(frame.f_code.co_filename) for frame in frames):
        ours = [frame for frame in frames if "/checkpointing/" in frame.f_code.co_filename]
        lines = [f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in ours or frames[:6]]
        calls.append(f"{event} {path}\n    " + "\n    ".join(lines[:6]))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames from the call outwards, up to those of the event loop."""
    while frame is not None and not frame.f_code.co_filename.endswith("/asyncio/events.py"):
        if frame.f_code.co_filename != __file__:
            yield frame
        frame = frame.f_back


def _is_exempt(file: str) -> bool:
    return file.startswith(_TESTS) or any(part in file for part in _NOT_OURS)
