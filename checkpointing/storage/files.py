"""The seam between checkpoint storage and the bytes: what a file system must be able to do, and this machine's own.

Others: `fsspec_files`, `memory_files`. `opening.files_for` says which of them a location belongs to.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from checkpointing.daemon_threads import progressed
from checkpointing.durable_files import opened, sync
from checkpointing.file_memory import FileMemory
from checkpointing.storage.checksums import checking, checksum_of
from checkpointing.storage.foreign_errors import in_words
from checkpointing.storage.giving_way import BYTES_A_SECOND_OF_A_PROCESSOR, GivingWay, Hurries, unhurried
from checkpointing.storage.layout import is_snapshot_directory, temporary_name

_REMOVE_ATTEMPTS = 5
_CHUNK = 1 << 20
_NOT_LINKABLE = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)
_LEAST_HANDED_OVER = 1 << 20
# As large as Linux lets anyone's be.
_PIPE = 1 << 20
_PROCESSORS = os.cpu_count() or 1
_TRANSFERS = min(4, _PROCESSORS)
_NO_HANDING_OVER = (errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP)
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

    def make_directory(self, path: str, *, new: bool = False) -> None:
        """Make `path` with its parents, durably. `new`: FileExistsError when it exists already, or anything in it."""
        ...

    def write_durably(self, path: str, content: bytes) -> None:
        """The file is there as a whole or not at all, also after a power cut."""
        ...

    def put(self, source: Path, path: str, hurries: Hurries = unhurried) -> None:
        """`path` gets the bytes of the local file `source`, as a whole or not at all, whatever was there before.

        Makes the directories between a snapshot's own and `path`, but neither that nor a pool: the job manager made
        them, and where they are missing the storage is away.
        `hurries`: asked now and then where it copies, whether it is to give way to nobody (see `giving_way`).
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
    def __init__(self) -> None:
        self._durable: FileMemory[bool] = FileMemory()

    @property
    def transfers(self) -> int:
        return _TRANSFERS

    def make_directory(self, path: str, *, new: bool = False) -> None:
        directory = Path(path)
        missing = [directory]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        with in_words(path):
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

    def put(self, source: Path, path: str, hurries: Hurries = unhurried) -> None:
        """Linked where the file system allows, else copied, by the kernel where it can (a clone where it can that)."""
        target = Path(path)
        temporary = _beside(target)
        try:
            with in_words(path):
                if not target.parent.is_dir():
                    _make_inside_snapshot(target.parent)
                if not _linked(source, target):
                    _link_or_copy(source, temporary, hurries)
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
        """A file once, however many names it gets: each sync is a word with the disk, also of a file that it has."""
        for path in paths:
            with in_words(path), opened(Path(path)) as descriptor:
                file = os.fstat(descriptor)
                if self._durable.get(file) is None:
                    os.fsync(descriptor)
                    if stat.S_ISREG(file.st_mode):
                        self._durable.learn(file, True)

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


def _make_inside_snapshot(directory: Path) -> None:
    """Make `directory` with its parents up to a snapshot's own directory; nothing where it is below none."""
    inside: list[Path] = []
    for each in (directory, *directory.parents):
        if is_snapshot_directory(str(each)):
            break
        inside.append(each)
    else:
        return
    for missing in reversed(inside):
        missing.mkdir(exist_ok=True)


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


def _link_or_copy(source: Path, target: Path, hurries: Hurries) -> None:
    if _linked(source, target):
        return
    with source.open("rb") as reader, target.open("xb") as writer:
        size = os.fstat(reader.fileno()).st_size
        copied = 0
        if size >= _LEAST_HANDED_OVER:
            copied = _handed_over(reader.fileno(), writer.fileno(), size, hurries)
        reader.seek(copied)
        copied += _copied_by_kernel(reader.fileno(), writer.fileno())
        if copied < size:
            reader.seek(copied)
            writer.seek(copied)
            shutil.copyfileobj(reader, writer, _CHUNK)
            writer.flush()
            copied = writer.tell()
    if copied != size:
        raise OSError(errno.EIO, f"{copied} bytes were copied, not the {size} of {source}")


def _handed_over(reader: int, writer: int, size: int, hurries: Hurries) -> int:
    """Bytes at the beginning, in whole pages, that the disk took from the pages of the file that is read.

    No processor copies them then, and no memory holds them twice until they are written out: a query that leaves no
    processor over is delayed by both. What is left, or all where a file system cannot do that, is for the others.
    Where others want the processors, it goes no faster than they are to bear (see `giving_way`), unless it `hurries`.
    """
    handed_over, whole = 0, size - size % mmap.PAGESIZE
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    outlet, inlet = os.pipe()
    try:
        fcntl.fcntl(inlet, fcntl.F_SETPIPE_SZ, _PIPE)
        fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_DIRECT)
        giving_way = GivingWay(BYTES_A_SECOND_OF_A_PROCESSOR * _PROCESSORS / _TRANSFERS, hurries)
        # Nothing at the end, and where it was cut short.
        while piped := os.splice(reader, inlet, min(_PIPE, whole - handed_over), offset_src=handed_over):
            left = piped
            while left:
                written = os.splice(outlet, writer, left)
                left -= written
                handed_over += written
            giving_way.wrote(piped)
    except OSError as error:
        if error.errno not in _NO_HANDING_OVER:
            raise
    finally:
        os.close(outlet)
        os.close(inlet)
        fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    return handed_over


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
