"""The interface between checkpoint storage and file systems, and its implementation for this machine.

Other implementations are `fsspec_files` and `memory_files`. `opening.files_for` returns the one for a location.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from checkpointing.daemon_threads import progressed
from checkpointing.durable_files import opened, sync
from checkpointing.storage.checksums import checking, checksum_of
from checkpointing.storage.foreign_errors import mapped_errors
from checkpointing.storage.layout import temporary_name

_REMOVE_ATTEMPTS = 5
_CHUNK = 1 << 20
_NOT_LINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
_TRANSFERS = min(4, os.cpu_count() or 1)
_NO_KERNEL_COPY = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class Entry(NamedTuple):
    """An entry of a directory. `modified_ms` is the time of its last change in epoch milliseconds, None: not known."""

    is_directory: bool
    size: int
    modified_ms: int | None


class Files(Protocol):
    """File operations of a storage. All methods block, and any thread may call them.

    Paths are locations (see `locations`), absolute, in canonical form. The methods raise FileNotFoundError for a
    missing path, FileExistsError for one that must not exist, else a StorageError or another OSError.
    """

    @property
    def transfers(self) -> int:
        """Return how many operations are worth running at the same time."""
        ...

    def make_directory(self, path: str, *, new: bool = False, parents: bool = True) -> None:
        """Create `path` with its parents, durably.

        `new`: raise FileExistsError if it exists or contains anything. `parents` False: raise FileNotFoundError if its
        parent is missing on a local disk.
        """
        ...

    def write_durably(self, path: str, content: bytes) -> None:
        """Write the file completely or not at all, also in case of a power failure."""
        ...

    def put(self, source: Path, path: str) -> None:
        """Store the bytes of the local file `source` at `path`, completely or not at all, and replace an existing file.

        The file survives a power failure after `make_durable` was called for it, and then for its directory.
        """
        ...

    def is_same(self, path: str, source: Path, checksum: str) -> bool:
        """Return whether `path`, which has the size of `source`, has its content.

        Return True if only a remote read could tell.
        """
        ...

    def make_durable(self, paths: Iterable[str]) -> None:
        """Sync stored files, and then directories with new names, in this order.

        Pass many paths at a time: the first sync makes the journal write the changes of all of them.
        """
        ...

    def get(self, path: str, target: Path, like: str) -> str:
        """Copy to the local file `target`, which must not exist.

        Return the checksum of the copy, as `checksum` does.
        """
        ...

    def read(self, path: str) -> bytes: ...

    def read_part(self, path: str, start: int, size: int) -> bytes:
        """Return at most `size` bytes from `start` on, which is before the end of the file."""
        ...

    def checksum(self, path: str, like: str) -> str:
        """Return the file's checksum of the same kind as `like`; see `checksums`."""
        ...

    def names(self, path: str) -> Sequence[str]:
        """Return the names in a directory, in no order; none if it is missing."""
        ...

    def sizes(self, path: str) -> Mapping[str, int]:
        """Return the sizes of the files directly in a directory; none if it is missing."""
        ...

    def entries(self, path: str) -> Mapping[str, Entry]:
        """Return the entries of a directory by name, without symbolic links. Raise FileNotFoundError if it is missing.

        One listing is enough: no entry is examined by another request.
        """
        ...

    def remove_file(self, path: str) -> None:
        """Remove a file. A missing one is not an error."""
        ...

    def remove_empty_directory(self, path: str) -> None:
        """Remove an empty directory. A missing one is not an error, and one with content stays."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its content.

        A missing one is not an error. Tolerate writes of another process that soon stop.
        """
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
        with mapped_errors(path):
            if parents:
                directory.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(exist_ok=not new)
        self.make_durable({str(made.parent) for made in missing})

    def write_durably(self, path: str, content: bytes) -> None:
        target = Path(path)
        temporary = _temporary_path(target)
        try:
            with mapped_errors(path), temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync(target.parent)

    def put(self, source: Path, path: str) -> None:
        """Link the file if possible, else let the kernel copy or clone it if possible, else copy it."""
        target = Path(path)
        temporary = _temporary_path(target)
        try:
            with mapped_errors(path):
                target.parent.mkdir(parents=True, exist_ok=True)
                if not _linked(source, target):
                    _link_or_copy(source, temporary)
                    temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)  # also after the rename of a link to itself, which does nothing

    def is_same(self, path: str, source: Path, checksum: str) -> bool:
        """Return whether the contents are equal.

        On another file system the size must suffice: reading costs as much as copying.
        """
        there, here = Path(path).stat(), source.stat()
        if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino) or there.st_dev != here.st_dev:
            return True
        return self.checksum(path, checksum) == checksum

    def make_durable(self, paths: Iterable[str]) -> None:
        for path in paths:
            with mapped_errors(path), opened(Path(path)) as descriptor:
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

    def read_part(self, path: str, start: int, size: int) -> bytes:
        with mapped_errors(path), Path(path).open("rb") as file:
            file.seek(start)
            return file.read(size)

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

    def entries(self, path: str) -> Mapping[str, Entry]:
        found = {}
        with mapped_errors(path), os.scandir(path) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removed the file after it was listed
                    if not entry.is_symlink():
                        status = entry.stat(follow_symlinks=False)
                        modified_ms = status.st_mtime_ns // 1_000_000
                        found[entry.name] = Entry(entry.is_dir(follow_symlinks=False), status.st_size, modified_ms)
        return found

    def remove_file(self, path: str) -> None:
        with mapped_errors(path):
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


def _temporary_path(target: Path) -> Path:
    return target.with_name(temporary_name(target.name))


def _linked(source: Path, target: Path) -> bool:
    """Link the file. Return False if `target` exists, or `source` cannot be linked there."""
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
        raise OSError(errno.EIO, f"{copied} bytes of {source} were copied instead of {size}")


def _copied_by_kernel(reader: int, writer: int) -> int:
    """Return the number of copied bytes: all, or 0 if the kernel cannot copy between these two."""
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
