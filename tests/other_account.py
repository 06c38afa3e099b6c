"""Check the rights of another local account. Only root can switch to it, so other users skip these tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

NOBODY = 65534
STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")


def does(act: Callable[[], object], account: int = STRANGER) -> str:
    """Call `act` in a separate process with uid and gid `account`. Return its result or error as text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(account, account, account)
            os.setresuid(account, account, account)
            text = str(act())
        except BaseException as error:  # noqa: BLE001  (the parent process needs every error)
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text


def can_open(paths: Iterable[Path], account: int = STRANGER) -> list[str]:
    """Return the `paths` that `account` can read, list or see."""
    known = list(paths)

    def try_all() -> str:
        return "\n".join(str(path) for path in known if _opens(path))

    return does(try_all, account).splitlines()


def _opens(path: Path) -> bool:
    try:
        path.lstat()
    except PermissionError:
        return False
    return True
