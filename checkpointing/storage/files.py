"""The seam between checkpoint storage and the bytes: what a file system must be able to do, and this machine's own.

Others: `fsspec_files`, `memory_files`. `opening.files_for` says which of them a location belongs to.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from checkpointing.daemon_threads import progressed
from checkpointing.durable_files import opened, sync
from checkpointing.storage.checksums import checking, checksum_of
from checkpointing.storage.foreign_errors import in_words
from checkpointing.storage.layout import temporary_name

_REMOVE_ATTEMPTS = 5
_CHUNK = 1 << 20
_NOT_LINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
_TRANSFERS = min(4, os.cpu_count() or 1)
_NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class Files(Protocol):
    """Blocking, from any thread. Paths are locations (see `locations`), absolute, in their canonical spelling.

    FileNotFoundError where something is missing, FileExistsError where something is in the way, else a StorageError or
    another OSError.
    """

    @property
    def transfers(self) -> int:
        """How many operations at a time are worth while."""
        ...

    def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
        """Make `path` with its parents, durably. `new`: FileExistsError when it exists already, or anything in it.
        `parents` False: FileNotFoundError when its parent is missing on a local disk."""
        ...

    def write_durably(self, path: str, content: bytes) -> None:
        """The file is there as a whole or not at all, also after a power cut."""
        ...

    def put(self, source: Path, path: str) -> None:
        """`path` gets the bytes of the local file `source`, as a whole or not at all, whatever was there before.

        There after a power cut once `make_durable` was called for it, and then for its directory.
        """
        ...

    def is_same(self, path: str, source: Path, checksum: str) -> bool:
        """`path` has the size of `source`: also its content? True where only reading it from afar could tell."""
        ...

    def make_durable(self, paths: Iterable[str]) -> None:
        """Files that were put, and directories with the names that were added; in this order.

        Many at a time: each journal entry that the first one forces out holds those of the others, too.
        """
        ...

    def get(self, path: str, target: Path, like: str) -> str:
        """Copy to the local file `target`, which must not exist; the checksum of what was copied, as in `checksum`."""
        ...

    def read(self, path: str) -> bytes: ...

    def checksum(self, path: str, like: str) -> str:
        """Of the kind that `like` is, see `checksums`."""
        ...

    def names(self, path: str) -> Sequence[str]:
        """What a directory holds, in no order; nothing when it is missing."""
        ...

    def sizes(self, path: str) -> Mapping[str, int]:
        """The files directly in a directory; nothing when it is missing."""
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
    @property
    def transfers(self) -> int:
        return _TRANSFERS

    def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
        directory = Path(path)
        missing = [directory]
        while parents and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        with in_words(path):
            if parents:
                directory.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(exist_ok=not new)
        self.make_durable({str(made.parent) for made in missing})

    def write_durably(self, path: str, content: bytes) -> None:
        target = Path(path)
        temporary = _beside(target)
        try:
            with in_words(path), temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync(target.parent)

    def put(self, source: Path, path: str) -> None:
        """Linked where the file system allows, else copied, by the kernel where it can (a clone where it can that)."""
        target = Path(path)
        temporary = _beside(target)
        try:
            with in_words(path):
                target.parent.mkdir(parents=True, exist_ok=True)
                if not _linked(source, target):
                    _link_or_copy(source, temporary)
                    temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)  # also after the rename of a link to itself, which does nothing

    def is_same(self, path: str, source: Path, checksum: str) -> bool:
        """On one file system a link is the same file; elsewhere the size has to do: reading costs what copying does."""
        there, here = Path(path).stat(), source.stat()
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) or there.st_dev != here.st_dev:
            return True
        return self.checksum(path, checksum) == checksum

    def make_durable(self, paths: Iterable[str]) -> None:
        for path in paths:
            with in_words(path), opened(Path(path)) as descriptor:
                os.fsync(descriptor)

    def get(self, path: str, target: Path, like: str) -> str:
        found = checking(like)
        target.parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("rb") as reader, target.open("xb") as writer:
            while chunk := reader.read(_CHUNK):
                found.update(chunk)
                writer.write(chunk)
                progressed()
        return found.checksum()

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def checksum(self, path: str, like: str) -> str:
        with Path(path).open("rb") as file:
            return checksum_of(file, like)

    def names(self, path: str) -> Sequence[str]:
        try:
            return [entry.name for entry in Path(path).iterdir()]
        except FileNotFoundError:
            return ()

    def sizes(self, path: str) -> Mapping[str, int]:
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except (FileNotFoundError, NotADirectoryError):
            return {}

    def remove_file(self, path: str) -> None:
        with in_words(path):
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


def _beside(target: Path) -> Path:
    return target.with_name(temporary_name(target.name))


def _linked(source: Path, target: Path) -> bool:
    """False when `target` is in the way, or `source` cannot be linked there."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NOT_LINKABLE:
            raise
        return False
    return True


def _link_or_copy(source: Path, target: Path) -> None:
    if _linked(source, target):
        return
    with source.open("rb") as reader, target.open("xb") as writer:
        size = os.fstat(reader.fileno()).st_size
        copied = _copied_by_kernel(reader.fileno(), writer.fileno())
        if copied < size:
            reader.seek(copied)
            writer.seek(copied)
            shutil.copyfileobj(reader, writer, _CHUNK)
            writer.flush()
            copied = writer.tell()
    if copied != size:
        raise OSError(errno.EIO, f"{copied} bytes were copied, not the {size} of {source}")


def _copied_by_kernel(reader: int, writer: int) -> int:
    """Bytes copied: all, or 0 when the kernel cannot copy between these two."""
    copied = 0
    while True:
        try:
            step = os.copy_file_range(reader, writer, 1 << 30)
        except OSError as error:
            if copied or error.errno not in _NO_KERNEL_COPY:
                raise
            return 0
        if step == 0:
            return copied
        copied += step
