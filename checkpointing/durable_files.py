"""What is there whole or not at all, also after a power cut."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO


def write_durably(path: Path, text: str, before_rename: Callable[[], None] = lambda: None) -> None:
    """Temporary name, fsync, rename, fsync of the directory. What `before_rename` raises leaves the old file.

    Only our own account can read the file: a job's configuration may hold secrets.
    """
    write_bytes_durably(path, text.encode(), before_rename)


def write_bytes_durably(path: Path, content: bytes, before_rename: Callable[[], None] = lambda: None) -> None:
    """Write bytes as `write_durably` does a text."""
    make_directory(path.parent)
    # Short: a name may be as long as the file system allows.
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
    """Make a directory, and durably every directory that leads to it and is missing: for this user alone."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
        sync(path.parent)


def append_privately(path: Path) -> IO[bytes]:
    """Open a file at its end; a new one only this user can read."""
    return open(path, "ab", opener=_private)


def close_to_others(directory: Path) -> None:
    """Make the directory, or take others' rights to it away. Those of its group stay where the group may write."""
    make_directory(directory)
    found = directory.stat()
    kept = 0o770 if found.st_mode & stat.S_IWGRP else 0o700
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o777 & ~kept:
        directory.chmod(stat.S_IMODE(found.st_mode) & ~0o777 | found.st_mode & kept)


def sync(path: Path) -> None:
    """Make a file's bytes durable, or in a directory the names that were added, renamed or removed."""
    with opened(path) as descriptor:
        os.fsync(descriptor)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """The descriptor of a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
