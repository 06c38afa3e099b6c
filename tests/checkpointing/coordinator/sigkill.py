"""SIGKILL to a process of one's own, right before the n-th step that it takes on a disk."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from tests import audit_hooks

# What Python's own audit events call the steps that change a disk; opening counts where it writes or syncs.
_CHANGES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"})


def is_killed_at(step: int, directory: Path, act: Callable[[], object]) -> bool:
    """Run `act` in a child that is killed right before its change number `step` below `directory` (the first is 0).

    False: it was through before. AssertionError when it failed in another way.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads; the child starts none
        child = os.fork()
    if child == 0:
        _act_until_killed(step, str(directory), act)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the child failed; its traceback is on stderr"
    return False


def _act_until_killed(step: int, directory: str, act: Callable[[], object]) -> None:
    left = step

    def count(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        if _changes(event, args, directory):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    try:
        audit_hooks.add(count)
        act()
    except BaseException:  # noqa: BLE001  (the child must not go on as a test run)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _changes(event: str, args: tuple[object, ...], directory: str) -> bool:
    path = os.fsdecode(args[0]) if args and isinstance(args[0], str | bytes | os.PathLike) else ""
    if event in _CHANGES:
        return path.startswith(directory) or not path.startswith("/")  # relative to an open directory
    if event != "open" or not path.startswith(directory):
        return False
    flags = args[2]
    writes = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return writes or os.path.isdir(path)  # noqa: PTH112  (in a hook: pathlib would come back here)
