"""What is there whole or not at all, also after a power cut."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path


def write_durably(path: Path, text: str, before_rename: Callable[[], None] = lambda: None) -> None:
    """Temporary name, fsync, rename, fsync of the directory. What `before_rename` raises leaves the old file.

    Only our own account can read the file: a job's configuration may hold secrets.
    """
    make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "x", encoding="utf-8", opener=_private) as file:
            file.write(text)
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
    """Make a directory, and durably every directory that leads to it and is missing."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


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
