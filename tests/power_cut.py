"""Simulate power cuts: every state that the disk may have after a power cut, at every step of some work.

The model is stricter than most file systems, as POSIX is:

- The content of a file is on the disk after a sync of the file. Before, the disk may have none, a part or all of it.
- The names in a directory are on the disk after a sync of the directory. Before, the disk may have the names of any
  moment since the last sync: a rename, a removal or a new name may be lost, also that of the directory in its parent.
- A rename is atomic: it is complete, or it has no effect.

`Disk.recorded` records the calls of a block that change files below a directory. `Disk.cuts` then creates each possible
state of the disk in the same directory, so that the product's code can read it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import audit_hooks

_CHANGES = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate"})

# The names in a directory, with the number of each file or directory.
Names = dict[str, int]
Tree = dict[str, "Tree | bytes"]

_recording: list[Disk] = []
_hook_is_there = False


@dataclass(frozen=True)
class Moment:
    """The possible states of the disk before the call `before`.

    `beside` is the state outside the disk at this moment, as the function `beside` of `Disk` returned it.
    """

    before: str
    is_over: bool
    names: dict[int, tuple[Names, ...]]
    contents: dict[int, tuple[bytes, ...]]
    root: int
    beside: object

    def trees(self) -> Iterator[Tree]:
        return self._trees(self.root)

    def _trees(self, directory: int) -> Iterator[Tree]:
        for names in self.names[directory]:
            parts = [list(self._found(number)) for number in names.values()]
            for found in itertools.product(*parts):
                yield dict(zip(names, found, strict=True))

    def _found(self, number: int) -> Iterator[Tree | bytes]:
        return iter(self.contents[number]) if number in self.contents else self._trees(number)


@dataclass(frozen=True)
class Cut:
    """A power cut before the call `before`. The disk has one of its possible states.

    With `is_over`, the recorded work had already returned.
    """

    before: str
    is_over: bool
    beside: Any


class Disk:
    """The files below `root`, which count as synced when the recording begins.

    `beside()` returns the state outside the disk, and is called at every step. The work may use threads. Their calls
    wait while another call is recorded.
    """

    def __init__(self, root: Path, beside: Callable[[], object] = lambda: None) -> None:
        self.root = root
        self._beside = beside
        self._numbers: dict[tuple[int, int], int] = {}
        self._next = itertools.count()
        self._names: dict[int, Names] = {}
        self._contents: dict[int, bytes] = {}
        self._names_since_sync: dict[int, list[Names]] = {}
        self._synced: dict[int, bytes] = {}
        self._moments: list[Moment] = []
        self._lock = threading.Lock()
        self._reading_thread: int | None = None

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the calls of the block. If the block raises an error, the recording ends there."""
        global _hook_is_there
        if not _hook_is_there:
            audit_hooks.add(_audited)
            _hook_is_there = True
        self._read_disk()
        for number, content in self._contents.items():
            self._synced[number] = content
        for number, names in self._names.items():
            self._names_since_sync[number] = [names]
        fsync = os.fsync
        os.fsync = lambda descriptor: self._sync(descriptor, fsync)
        _recording.append(self)
        try:
            yield
        finally:
            _recording.remove(self)
            os.fsync = fsync
            self._note("the end", is_over=True)

    def cuts(self) -> Iterator[Cut]:
        """Yield each power cut, after the disk was set to its state. Equal states are yielded only once."""
        seen: list[tuple[bool, object, Tree]] = []
        for moment in self._moments:
            for tree in moment.trees():
                if (moment.is_over, moment.beside, tree) not in seen:
                    seen.append((moment.is_over, moment.beside, tree))
                    _put(self.root, tree)
                    yield Cut(moment.before, moment.is_over, moment.beside)

    # --- while it is recorded

    def record_event(self, event: str, args: tuple[Any, ...]) -> None:
        if self._reading_thread == threading.get_ident():
            return
        paths = [os.fsdecode(path) for path in args[:2] if isinstance(path, str | bytes | os.PathLike)]
        if any(path.startswith(f"{self.root}/") for path in paths):
            self._note(f"{event} {' '.join(path.removeprefix(f'{self.root}/') for path in paths)}")

    def _sync(self, descriptor: int, fsync: Callable[[int], None]) -> None:
        self._note(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink()}")
        fsync(descriptor)
        found = os.fstat(descriptor)
        with self._lock:
            number = self._numbers.get((found.st_dev, found.st_ino))
            if number is None:
                return
            if stat.S_ISDIR(found.st_mode):
                self._names_since_sync[number] = [self._names[number]]
            else:
                self._synced[number] = self._contents[number]

    def _note(self, before: str, *, is_over: bool = False) -> None:
        with self._lock:
            self._note_now(before, is_over=is_over)

    def _note_now(self, before: str, *, is_over: bool) -> None:
        root = self._read_disk()
        contents = {number: self._possible(number) for number in self._contents}
        names = {number: tuple(_distinct(since)) for number, since in self._names_since_sync.items()}
        self._moments.append(Moment(before, is_over, names, contents, root, self._beside()))

    def _possible(self, number: int) -> tuple[bytes, ...]:
        now, synced = self._contents[number], self._synced.get(number, b"")
        return tuple(_distinct([synced, now[: len(now) // 2], now])) if now != synced else (now,)

    def _read_disk(self) -> int:
        """Store the current files of the disk, and return the number of the root directory."""
        self._reading_thread = threading.get_ident()
        try:
            before = set(self._numbers)
            seen: set[tuple[int, int]] = set()
            root = self._taken_in(before, seen)
            for gone in before - seen:  # a new file may get the same inode
                del self._numbers[gone]
            return root
        finally:
            self._reading_thread = None

    def _taken_in(self, before: set[tuple[int, int]], seen: set[tuple[int, int]]) -> int:
        while True:
            with contextlib.suppress(FileNotFoundError):  # another thread has just renamed it
                return self._take_in(self.root, before, seen)

    def _take_in(self, path: Path, before: set[tuple[int, int]], seen: set[tuple[int, int]]) -> int:
        found = path.lstat()
        inode = (found.st_dev, found.st_ino)
        if inode not in self._numbers:
            self._numbers[inode] = next(self._next)
        number = self._numbers[inode]
        seen.add(inode)
        if stat.S_ISDIR(found.st_mode):
            names = {entry.name: self._take_in(entry, before, seen) for entry in sorted(path.iterdir())}
            since = self._names_since_sync.setdefault(number, [{}])
            if since[-1] != names:
                since.append(names)
            self._names[number] = names
        else:
            self._contents[number] = path.read_bytes()
        return number


def _distinct(values: list[Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]


def _audited(event: str, args: tuple[Any, ...]) -> None:
    if _recording and event in _CHANGES:
        for disk in (*_recording,):
            disk.record_event(event, args)


def _put(directory: Path, tree: Tree) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for name, found in tree.items():
        if isinstance(found, bytes):
            (directory / name).write_bytes(found)
        else:
            (directory / name).mkdir()
            _put(directory / name, found)
