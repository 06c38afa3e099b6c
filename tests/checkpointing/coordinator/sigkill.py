"""Send SIGKILL to a child process right before the n-th change that it makes on a disk."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from tests import audit_hooks

# Python's audit events for calls that change a disk. `open` counts, too, if it opens a file to write or to sync.
_CHANGES = frozenset({"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate"})


def is_killed_at(step: int, directory: Path, act: Callable[[], object]) -> bool:
    """Run `act` in a child that is killed right before its change number `step` below `directory` (the first is 0).

    Return False if `act` made fewer changes. Raise AssertionError if `act` failed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork with threads
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
    except BaseException:  # noqa: BLE001  (the child must not continue the test run)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _changes(event: str, args: tuple[object, ...], directory: str) -> bool:
    path = os.fsdecode(args[0]) if args and isinstance(args[0], str | bytes | os.PathLike) else ""
    if event in _CHANGES:
        return path.startswith(directory) or not path.startswith("/")  # a relative path is below an open directory
    if event != "open" or not path.startswith(directory):
        return False
    flags = args[2]
    writes = isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return writes or os.path.isdir(path)  # noqa: PTH112  (pathlib would call this hook again)
