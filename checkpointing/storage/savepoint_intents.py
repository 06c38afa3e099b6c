"""Which savepoints have been begun: noted durably before their directory is made, until they are complete or removed.

A savepoint lies in a place of its user's, where nobody may clean up on a guess. So whoever begins one leaves an
*intent* on the job managers' own disk: a file `<job id>.<savepoint's name>` that holds the directory. Of a job manager
that died the intents are what is left; the directory of each goes if it holds nothing but what a driver puts there
before a savepoint is complete, and then the intent.

The file is locked for as long as the one who began the savepoint lives and works on it, so that another job manager on
the same disk never takes it for abandoned.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from checkpointing.durable_files import sync
from checkpointing.storage.errors import StorageError
from checkpointing.storage.files import Files, LocalFiles
from checkpointing.storage.layout import METADATA, QUERY_ENTRIES, is_savepoint_directory_of, is_temporary
from checkpointing.storage.locations import name
from checkpointing.storage.opening import files_for
from checkpointing.storage.roots import SavepointRoots

logger = logging.getLogger(__name__)


class SavepointIntents:
    """Those of one job, in `directory`, which all jobs share. Blocking, from any thread."""

    def __init__(self, directory: Path, job_id: str) -> None:
        self._directory = directory
        self._job_id = job_id
        self._begun: dict[str, TextIO] = {}

    def begin(self, savepoint: str) -> None:
        """Note that the directory `savepoint` is about to be made, by this job manager. OSError: it must not be."""
        LocalFiles().make_directory(str(self._directory))
        file = self._path(savepoint).open("x", encoding="utf-8")
        try:
            with contextlib.suppress(OSError):  # a disk without locks: there the leader's term has to do
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(f"{savepoint}\n")
            file.flush()
            os.fsync(file.fileno())
            sync(self._directory)
        except OSError:
            file.close()
            self._path(savepoint).unlink(missing_ok=True)
            raise
        self._begun[savepoint] = file

    def end(self, savepoint: str) -> None:
        """It is complete, or all of it is gone. That no longer being noted is no reason to fail."""
        self.leave(savepoint)
        try:
            self._path(savepoint).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("job %s: that %s has ended could not be noted: %s", self._job_id, savepoint, error)

    def leave(self, savepoint: str) -> None:
        """Nobody works on it any more, and something of it may be there: for the next sweep."""
        file = self._begun.pop(savepoint, None)
        if file is not None:
            file.close()

    def abandon(self) -> None:
        """As when this process ends: what is noted is for whoever sweeps."""
        for savepoint in list(self._begun):
            self.leave(savepoint)

    def sweep(
        self, roots: SavepointRoots | None, may_remove: Callable[[], bool], files: Files | None = None
    ) -> tuple[str, ...]:
        """Remove what others began and left; which directories went. Only while no driver of theirs lives. OSError.

        `may_remove` is asked right before each removal. Repeated after a crash it goes on where the last one ended. One
        that cannot be removed now keeps nobody from the others.
        """
        removed: list[str] = []
        problems: list[OSError] = []
        for path in sorted(self._directory.glob(f"{self._job_id}.*")):
            try:
                with _held(path) as intent:
                    if intent is not None and may_remove() and self._is_over(intent.read(), roots, files, removed):
                        path.unlink(missing_ok=True)
            except OSError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        return tuple(removed)

    def _is_over(self, noted: str, roots: SavepointRoots | None, files: Files | None, removed: list[str]) -> bool:
        """One that was cut off was never durable: no directory was made after it."""
        savepoint = noted.removesuffix("\n")
        if savepoint in self._begun:
            return False
        return savepoint == noted or self._is_settled(savepoint, roots, files, removed)

    def _is_settled(
        self, savepoint: str, roots: SavepointRoots | None, files: Files | None, removed: list[str]
    ) -> bool:
        """False: something is there that must stay, and so must the intent."""
        if not is_savepoint_directory_of(savepoint, self._job_id) or not _is_within(savepoint, roots):
            logger.warning("job %s: %s was begun and stays: it is in no savepoint directory", self._job_id, savepoint)
            return False
        files = files or files_for(savepoint)
        entries = files.names(savepoint)
        if METADATA in entries:
            return True
        if foreign := _foreign(savepoint, entries, files):
            logger.warning("job %s: %s was begun and stays: %s in it is not ours", self._job_id, savepoint, foreign)
            return False
        files.remove_tree(savepoint)
        if entries:
            removed.append(savepoint)
        return True

    def _path(self, savepoint: str) -> Path:
        return self._directory / f"{self._job_id}.{name(savepoint)}"


def jobs_with_intents(directory: Path) -> set[str]:
    """Whose savepoints were begun and have not ended. OSError."""
    try:
        return {entry.name.partition(".")[0] for entry in directory.iterdir()}
    except FileNotFoundError:
        return set()


@contextlib.contextmanager
def _held(path: Path) -> Iterator[TextIO | None]:
    """The intent, locked; None when its job manager lives, or when it has just ended."""
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        yield None
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        except OSError:
            pass  # a disk without locks
        yield file


def _is_within(savepoint: str, roots: SavepointRoots | None) -> bool:
    try:
        return roots is None or roots.confine(savepoint) == savepoint
    except StorageError:
        return False


def _foreign(savepoint: str, entries: Sequence[str], files: Files) -> str:
    """The first thing in there that neither a driver nor a job manager puts there; "" when there is none."""
    plain = files.sizes(savepoint)
    for entry in sorted(entries):
        if is_temporary(entry):
            continue
        if entry in plain:
            return entry
        for inner in sorted(files.names(f"{savepoint}/{entry}")):
            if inner not in QUERY_ENTRIES and not is_temporary(inner):
                return f"{entry}/{inner}"
    return ""
