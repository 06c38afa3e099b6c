"""A disk that forgets what was not synced: every state that a power cut could leave, at every step of some work.

The model is stricter than most file systems, as POSIX is:

- A file's bytes are on the disk once the file was synced. Until then none of them, a part or all may be.
- A directory's names are on the disk once the directory was synced. Until then the disk may have them as they were at
  any moment since: a rename, a removal or a new name may be forgotten, also that of a directory in its parent.
- A rename is found done or not done.

`Disk.recorded` notes the calls of a block that change files below a directory. `Disk.cuts` then builds each state that
the disk may have, in the same directory, for the product's own readers.
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

# Names of a directory: None for a file or a directory that is known by its number.
Names = dict[str, int]
Tree = dict[str, "Tree | bytes"]

_recording: list[Disk] = []
_hook_is_there = False


@dataclass(frozen=True)
class Moment:
    """What the disk may have at one moment. `before` is the call that comes next; `beside` what is on no disk."""

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
    """The disk is as a power cut before the call `before` could leave it. `is_over`: the recorded work had returned."""

    before: str
    is_over: bool
    beside: Any


class Disk:
    """Everything below `root`, all of it synced when the recording begins. `beside()` is noted at every step.

    The work may use threads; each of their calls waits while another one is noted.
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
        self._looking: int | None = None

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """The work of the block; one that raises is recorded up to there."""
        global _hook_is_there
        if not _hook_is_there:
            audit_hooks.add(_audited)
            _hook_is_there = True
        self._look()
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
        """Every state of the disk at every step, each one once for what was on no disk then."""
        seen: list[tuple[bool, object, Tree]] = []
        for moment in self._moments:
            for tree in moment.trees():
                if (moment.is_over, moment.beside, tree) not in seen:
                    seen.append((moment.is_over, moment.beside, tree))
                    _put(self.root, tree)
                    yield Cut(moment.before, moment.is_over, moment.beside)

    # --- while it is recorded

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        if self._looking == threading.get_ident():
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
        root = self._look()
        contents = {number: self._possible(number) for number in self._contents}
        names = {number: tuple(_distinct(since)) for number, since in self._names_since_sync.items()}
        self._moments.append(Moment(before, is_over, names, contents, root, self._beside()))

    def _possible(self, number: int) -> tuple[bytes, ...]:
        now, synced = self._contents[number], self._synced.get(number, b"")
        return tuple(_distinct([synced, now[: len(now) // 2], now])) if now != synced else (now,)

    def _look(self) -> int:
        """Take in what is there now; the number of the root."""
        self._looking = threading.get_ident()
        try:
            before = set(self._numbers)
            seen: set[tuple[int, int]] = set()
            root = self._taken_in(before, seen)
            for gone in before - seen:  # its inode may be another file's next
                del self._numbers[gone]
            return root
        finally:
            self._looking = None

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
            disk.heard(event, args)


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
