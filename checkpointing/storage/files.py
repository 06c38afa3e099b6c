"""The one door to the bytes of checkpoint storage. Today local paths; another file system is another `Files`."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

_REMOVE_ATTEMPTS = 5


class Files(Protocol):
    """Blocking. Paths are absolute, as text. OSError on failure; FileNotFoundError where something is missing."""

    def make_directory(self, path: str, *, new: bool = False) -> None:
        """Make `path` with its parents, durably. `new`: FileExistsError when it exists already."""
        ...

    def write_durably(self, path: str, content: bytes) -> None:
        """The file is there as a whole or not at all, also after a power cut."""
        ...

    def read(self, path: str) -> bytes: ...

    def size(self, path: str) -> int: ...

    def sha256(self, path: str) -> str: ...

    def names(self, path: str) -> Sequence[str]:
        """What a directory holds, in no order; nothing when it is missing."""
        ...

    def remove_file(self, path: str) -> None:
        """A missing one is fine."""
        ...

    def remove_empty_directory(self, path: str) -> None:
        """A missing one is fine; one that holds anything stays."""
        ...

    def remove_tree(self, path: str) -> None:
        """A missing one is fine; so is another process writing in it meanwhile, as long as it stops."""
        ...


class LocalFiles:
    def make_directory(self, path: str, *, new: bool = False) -> None:
        directory = Path(path)
        missing = [directory]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(exist_ok=not new)
        for made in missing:
            _sync_directory(made.parent)

    def write_durably(self, path: str, content: bytes) -> None:
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def size(self, path: str) -> int:
        """Of a regular file; FileNotFoundError for anything else."""
        if not Path(path).is_file():
            raise FileNotFoundError(path)
        return Path(path).stat().st_size

    def sha256(self, path: str) -> str:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def names(self, path: str) -> Sequence[str]:
        try:
            return [entry.name for entry in Path(path).iterdir()]
        except FileNotFoundError:
            return ()

    def remove_file(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_empty_directory(self, path: str) -> None:
        try:
            Path(path).rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    def remove_tree(self, path: str) -> None:
        for attempt in range(1, _REMOVE_ATTEMPTS + 1):
            try:
                shutil.rmtree(path)
            except OSError:
                if not Path(path).exists():
                    return
                if attempt == _REMOVE_ATTEMPTS:
                    raise
            else:
                return


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
