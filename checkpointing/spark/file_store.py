"""Moving a snapshot's files: linked where the file system allows, else copied, and durable before they are reported."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections import OrderedDict
from pathlib import Path

_CHUNK = 1 << 20
_HASHES_KEPT = 100_000
_NOT_LINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)


class FileHashes:
    """SHA-256 of files, remembered by inode, modification time and size: Spark renames and never rewrites in place."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int, int], str] = OrderedDict()

    def of(self, path: Path) -> str:
        stat = path.stat()
        key = (stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if key not in self._known:
            self._known[key] = sha256_of(path)
            if len(self._known) > _HASHES_KEPT:
                self._known.popitem(last=False)
        return self._known[key]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def place(source: Path, target: Path) -> None:
    """Make `target` the same bytes as `source`, whole or not at all, on disk when this returns.

    An existing `target` is left as it is: a name in the pool says what its bytes are.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in _NOT_LINKABLE:
            raise
        _copy(source, target)
        return
    sync(target)


def _copy(source: Path, target: Path) -> None:
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        shutil.copyfile(source, partial)
        sync(partial)
        partial.rename(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_files(root: Path) -> dict[str, int]:
    """Sizes of the files below `root` by relative path. A file that goes away meanwhile is left out."""
    found: dict[str, int] = {}
    pending = [""]
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(root / directory))
        except FileNotFoundError:
            continue
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
                continue
            try:
                found[path] = entry.stat().st_size
            except FileNotFoundError:
                continue
    return found


def copy_verified(source: Path, target: Path, size: int, sha256: str) -> None:
    """Copy and check; ValueError when the bytes are not the ones promised."""
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK):
            digest.update(chunk)
            writer.write(chunk)
        written = writer.tell()
    if written != size or digest.hexdigest() != sha256:
        raise ValueError(f"{source} is damaged: {written} bytes with checksum {digest.hexdigest()}")
