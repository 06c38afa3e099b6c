"""Records of savepoints that were begun, stored durably before their directory is created until they end.

A savepoint is in a directory of its user, where files must not be removed on a guess. So a job manager that begins one
writes an *intent* on its own disk: a file `<job id>.<savepoint's name>` that contains the directory. The intents of a
dead job manager remain. A sweep removes each directory if it contains only files that a driver writes before a
savepoint is complete, and then the intent.

The file is locked while the process that began the savepoint works on it. So another job manager on the same
disk never treats the savepoint as abandoned.
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
    """The intents of one job, in `directory`, which all jobs share. All methods block; any thread may call them."""

    def __init__(self, directory: Path, job_id: str) -> None:
        self._directory = directory
        self._job_id = job_id
        self._begun: dict[str, TextIO] = {}

    def begin(self, savepoint: str) -> None:
        """Record that this job manager is about to create the directory `savepoint`.

        On OSError it must not create it.
        """
        LocalFiles().make_directory(str(self._directory))
        file = self._path(savepoint).open("x", encoding="utf-8")
        try:
            with contextlib.suppress(OSError):  # on a disk without locks the leader's term must suffice
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
        """Remove the intent, because the savepoint is complete or removed. An error here is only logged."""
        self.leave(savepoint)
        try:
            self._path(savepoint).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("job %s: that %s has ended could not be noted: %s", self._job_id, savepoint, error)

    def leave(self, savepoint: str) -> None:
        """Release an intent for the next sweep: no process works on the savepoint, but some of its files may exist."""
        file = self._begun.pop(savepoint, None)
        if file is not None:
            file.close()

    def abandon(self) -> None:
        """Release all intents for the next sweep, as the end of this process does."""
        for savepoint in list(self._begun):
            self.leave(savepoint)

    def sweep(
        self, roots: SavepointRoots | None, may_remove: Callable[[], bool], files: Files | None = None
    ) -> tuple[str, ...]:
        """Remove abandoned savepoints of others.

        Return their directories. Call it only while none of their drivers is running.

        `may_remove` is called right before each removal. After a crash, a repeated sweep continues. A savepoint that
        cannot be removed now does not delay the others. Raise OSError.
        """
        removed: list[str] = []
        problems: list[OSError] = []
        for path in sorted(self._directory.glob(f"{self._job_id}.*")):
            try:
                with _locked_intent(path) as intent:
                    if intent is not None and may_remove() and self._is_over(intent.read(), roots, files, removed):
                        path.unlink(missing_ok=True)
            except OSError as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        return tuple(removed)

    def _is_over(self, noted: str, roots: SavepointRoots | None, files: Files | None, removed: list[str]) -> bool:
        """Return whether the intent can be removed. An incomplete intent was never durable, so it has no directory."""
        savepoint = noted.removesuffix("\n")
        if savepoint in self._begun:
            return False
        return savepoint == noted or self._is_settled(savepoint, roots, files, removed)

    def _is_settled(
        self, savepoint: str, roots: SavepointRoots | None, files: Files | None, removed: list[str]
    ) -> bool:
        """Remove an abandoned savepoint. Return False if files must stay: then the intent must stay, too."""
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
    """Return the jobs with savepoints that were started and have not ended. Raise OSError."""
    try:
        return {entry.name.partition(".")[0] for entry in directory.iterdir()}
    except FileNotFoundError:
        return set()


@contextlib.contextmanager
def _locked_intent(path: Path) -> Iterator[TextIO | None]:
    """Yield the locked intent, or None if its job manager is running or it has just ended."""
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
            pass  # the disk supports no locks
        yield file


def _is_within(savepoint: str, roots: SavepointRoots | None) -> bool:
    try:
        return roots is None or roots.resolve(savepoint) == savepoint
    except StorageError:
        return False


def _foreign(savepoint: str, entries: Sequence[str], files: Files) -> str:
    """Return the first file that neither a driver nor a job manager writes there, or "" if there is none."""
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
