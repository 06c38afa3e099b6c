"""Writes files that exist completely or not at all, also after a power failure."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO


def write_durably(path: Path, text: str, before_rename: Callable[[], None] = lambda: None) -> None:
    """Write a text under a temporary name, sync, rename, and sync the directory.

    If `before_rename` raises, the old file stays. Only this account can read the file, because a job's configuration
    may contain secrets.
    """
    write_bytes_durably(path, text.encode(), before_rename)


def write_bytes_durably(path: Path, content: bytes, before_rename: Callable[[], None] = lambda: None) -> None:
    """Write bytes, as `write_durably` writes a text."""
    make_directory(path.parent)
    # A short name, because `path` may have the longest name that the file system allows.
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        before_rename()
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def make_directory(path: Path) -> None:
    """Create a directory with its missing parents, durably and for this user alone."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync(path.parent)


def append_privately(path: Path) -> IO[bytes]:
    """Open a file for appending. Only this user can read a new one."""
    return open(path, "ab", opener=_private)


def restrict_access(directory: Path) -> None:
    """Create the directory, or remove the rights of others. Rights of its group stay if the group may write."""
    make_directory(directory)
    found = directory.stat()
    kept = 0o770 if found.st_mode & stat.S_IWGRP else 0o700
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o777 & ~kept:
        directory.chmod(stat.S_IMODE(found.st_mode) & ~0o777 | found.st_mode & kept)


def sync(path: Path) -> None:
    """Sync a file's content, or the names that were added, renamed or removed in a directory."""
    with opened(path) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Yield the descriptor of a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
