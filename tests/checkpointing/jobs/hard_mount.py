"""A directory whose file system does not respond, like a hard mount whose server is gone.

Every call below the directory waits until `answer` is called, in every thread except the test's, which made the mount.
As in `loop_guard`, an audit hook blocks the calls that Python reports; `os.stat` and similar functions are replaced.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests import audit_hooks
from tests.checkpointing.jobs.loop_guard import EVENTS, WITHOUT_EVENT

_mounts: list[HardMount] = []
_hook_is_there = False


class HardMount:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._answers = threading.Event()
        self._answers.set()
        self._owner = threading.get_ident()
        self.num_hanging = 0

    def hang(self) -> None:
        self._answers.clear()

    def answer(self) -> None:
        self._answers.set()

    def hold_up(self, path: object) -> None:
        if not self._answers.is_set() and threading.get_ident() != self._owner and self._has(path):
            self.num_hanging += 1
            self._answers.wait()
            self.num_hanging -= 1

    def _has(self, path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        text = os.fsdecode(path)
        return text == str(self.path) or text.startswith(f"{self.path}/")


@contextlib.contextmanager
def hard_mount(path: Path) -> Iterator[HardMount]:
    """Yield a hard mount at `path`. At the end of the block its server responds again."""
    global _hook_is_there
    if not _hook_is_there:
        audit_hooks.add(_audited)
        _hook_is_there = True
    path.mkdir(parents=True, exist_ok=True)
    mount = HardMount(path)
    originals = {name: getattr(os, name) for name in WITHOUT_EVENT}
    for name, original in originals.items():
        setattr(os, name, _held_up(mount, original))
    _mounts.append(mount)
    try:
        yield mount
    finally:
        mount.answer()
        _mounts.remove(mount)
        for name, original in originals.items():
            setattr(os, name, original)


def _audited(event: str, args: tuple[Any, ...]) -> None:
    if _mounts and event in EVENTS:
        for mount in (*_mounts,):
            mount.hold_up(args[0])


def _held_up(mount: HardMount, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **more: Any) -> Any:
        mount.hold_up(args[0])
        return original(*args, **more)

    return call
