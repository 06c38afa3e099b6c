"""Check and remove snapshots directly in storage, for engines that cannot do it and for clusters that are gone.

It works only below WAYMARK_STATE_ROOTS and only if the root is not empty: an empty root may be a missing mount. It
knows the formats of Flink and Waymark. No function waits longer than the time limit of its caller; then it raises
StorageSilent.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.conf import settings

from checkpointing.storage import (
    MetadataMissing,
    OutsideSavepointRoots,
    SavepointRoots,
    SnapshotUnusable,
    StorageError,
    UnsafeLocation,
    canonical,
    dispose_savepoint,
    files_for,
    read_metadata,
    verify,
)
from checkpointing.storage.claims import check_unclaimed
from monitoring.engine.answers import SavepointValidation
from monitoring.engine.client import FlinkClient
from monitoring.reasons.reason import Reason
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.flink_metadata import MAGIC, CutShort, FlinkMetadata, NeededFile, NotFlinkMetadata, parse
from monitoring.savepoints.storage_threads import STORAGE_THREADS, StorageSilent, TimeLimit
from monitoring.state_roots import is_below

T = TypeVar("T")

# The first limit is for listing a directory or reading a `_metadata`, also while a page waits. The second is for
# checking all files of a snapshot or removing it in the background. Both are shorter than the limit of an engine call.
LISTED_WITHIN_S = 5.0
READ_WITHIN_S = 40.0
METADATA = "_metadata"
# The prefix of a savepoint's directory, for Flink and Waymark.
SAVEPOINT = "savepoint-"
# The name of a checkpoint's directory, and how many of the newest ones are checked for completeness.
_CHECKPOINT = re.compile(r"chk-(\d+)")
CHECKPOINTS = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundSavepoint:
    path: str
    checkpoint_id: int


async def validate(
    client: FlinkClient | None, path: str, entry_class: str | None = None, *, limit_s: float = READ_WITHIN_S
) -> SavepointValidation | StorageSilent | None:
    """Let the engine check the snapshot at `path`, or check its files if the engine cannot or is gone (None).

    None: neither is possible.
    """
    answer = None if client is None else await client.validate_savepoint(path, entry_class)
    if answer is not None:
        return answer
    return await asyncio.to_thread(_check_files_within_limit, path, TimeLimit(limit_s))


def _check_files_within_limit(path: str, time_limit: TimeLimit) -> SavepointValidation | StorageSilent | None:
    try:
        return check_files(path, time_limit)
    except StorageSilent as silent:
        return silent


def is_reachable(path: str) -> bool:
    """Return whether Waymark can reach the path in storage.

    It is False, too, if the storage does not answer in time.
    """
    try:
        return _in_thread("", path, lambda: _confined(path), TimeLimit(LISTED_WITHIN_S)) is not None
    except (StorageSilent, StorageError):
        return False


def check_files(path: str, time_limit: TimeLimit) -> SavepointValidation | None:
    """Check that all files of the snapshot exist with their sizes.

    None: the path is not reachable. Raises StorageSilent.
    """
    return _in_thread("files", path, lambda: _judged(path), time_limit)


def _judged(path: str) -> SavepointValidation | None:
    try:
        directory = _confined(path)
        if directory is None:
            return None
        checkpoint_id, problem = _check(directory)
    except SnapshotUnusable as unusable:
        missing = isinstance(unusable, MetadataMissing)
        return SavepointValidation(False, unusable.problem, None, "", "", None, None, missing)
    except CutShort as unreadable:
        checkpoint_id, problem = None, SavepointReason.METADATA_UNREADABLE(file=METADATA, error=str(unreadable))
    except (OSError, NotFlinkMetadata) as error:
        log.warning("%s cannot be looked at: %s", path, error)
        return None
    return SavepointValidation(problem is None, problem or "", checkpoint_id, "", "", None, None)


def checkpoints_in(directory: str, time_limit: TimeLimit) -> list[int] | None:
    """Return the numbers of the newest checkpoints in a run's directory, newest first.

    The list is empty if the directory is missing. None: the directory is not reachable. Raises StorageSilent.
    """
    return _in_thread("", directory, lambda: _checkpoints_in(directory), time_limit)


def _checkpoints_in(directory: str) -> list[int] | None:
    try:
        confined = _confined(directory)
        if confined is None:
            return None
        files = files_for(confined)
        numbered = [found for name in files.names(confined) if (found := _CHECKPOINT.fullmatch(name))]
        newest = sorted(numbered, key=lambda found: int(found[1]), reverse=True)[:CHECKPOINTS]
        # Flink and Waymark write _metadata last, so these checkpoints are complete.
        return [int(found[1]) for found in newest if METADATA in files.names(f"{confined}/{found[0]}")]
    except OSError as error:
        log.warning("%s cannot be looked at: %s", directory, error)
        return None


def savepoints_in(directory: str, of: str, since: datetime, time_limit: TimeLimit) -> list[FoundSavepoint] | None:
    """Return Flink's complete savepoints in the directory that were written after `since`.

    `of` are the first digits of the job's ID in their names. None: the directory is not reachable. Raises
    StorageSilent.
    """
    return _in_thread("files", directory, lambda: _savepoints_in(directory, of, since), time_limit)


def _savepoints_in(directory: str, of: str, since: datetime) -> list[FoundSavepoint] | None:
    try:
        confined = _confined(directory)
        if confined is None:
            return None
        names = [name for name in files_for(confined).names(confined) if name.startswith(f"{SAVEPOINT}{of}-")]
        found = (_savepoint(f"{confined}/{name}", f"{directory}/{name}", since) for name in names)
        return [each for each in found if each is not None]
    except OSError as error:
        log.warning("%s cannot be looked at: %s", directory, error)
        return None


def _savepoint(confined: str, path: str, since: datetime) -> FoundSavepoint | None:
    written = files_for(confined).entries(confined).get(METADATA)
    if written is None or (written.modified_ms is not None and written.modified_ms < since.timestamp() * 1000):
        return None
    try:
        metadata = _flink_metadata(confined)
    except (SnapshotUnusable, NotFlinkMetadata) as error:
        log.warning("%s cannot be looked at: %s", path, error)
        return None
    return None if metadata is None else FoundSavepoint(path, metadata.checkpoint_id)


def size_of(path: str, time_limit: TimeLimit) -> int | None:
    """Return the size in bytes of all files that the snapshot's metadata lists, or None if that cannot be read.

    Raises StorageSilent.
    """
    return _in_thread("", path, lambda: _size_of(path), time_limit)


def _size_of(path: str) -> int | None:
    try:
        directory = _confined(path)
        if directory is None:
            return None
        metadata = _flink_metadata(directory)
        if metadata is None:
            return read_metadata(directory).state_size
        # For a shared file, count up to the end of its furthest part.
        sizes: dict[str, int] = defaultdict(int)
        for file in metadata.files:
            sizes[file.location] = max(sizes[file.location], file.size)
        return sum(sizes.values()) + files_for(directory).sizes(directory)[METADATA]
    except (OSError, SnapshotUnusable, NotFlinkMetadata, KeyError) as error:
        log.warning("%s cannot be looked at: %s", path, error)
        return None


def remove(path: str, time_limit: TimeLimit) -> None:
    """Remove a savepoint's files, also after an incomplete removal.

    Raises:
        SnapshotClaimed: a job has taken it over.
        StorageError, SnapshotUnusable, NotFlinkMetadata: it is not a savepoint that can be removed.
        FileNotFoundError: there is nothing at all.
        StorageSilent: the storage does not answer; the removal may still continue.
    """
    _in_thread("removals", path, lambda: _remove(path), time_limit)


def _remove(path: str) -> None:
    directory = _roots().resolve(path)
    files = files_for(directory)
    check_unclaimed(directory, files)
    try:
        metadata = _flink_metadata(directory)
    except MetadataMissing:
        if not _is_named_savepoint(directory) or not files.names(directory):
            raise FileNotFoundError(f"{path} does not exist") from None
        files.remove_tree(directory)
        return
    if metadata is None:
        dispose_savepoint(directory, _roots())
        return
    if not (_is_named_savepoint(directory) if metadata.is_savepoint is None else metadata.is_savepoint):
        raise UnsafeLocation(f"{path} is a checkpoint, which belongs to its job, not a savepoint")
    # Remove _metadata first, so that the rest never looks like a complete savepoint.
    files.remove_file(f"{directory}/{METADATA}")
    files.remove_tree(directory)


def remove_empty(directory: str, inside: Iterable[str], time_limit: TimeLimit) -> bool | None:
    """Remove a directory that contains only empty directories with these names.

    Return False if it contains more and stays.

    None: the directory is not reachable. Raises StorageSilent.
    """
    return _in_thread("removals", directory, lambda: _remove_empty(directory, inside), time_limit)


def _remove_empty(directory: str, inside: Iterable[str]) -> bool | None:
    try:
        confined = _confined(directory)
        if confined is None:
            return None
        files = files_for(confined)
        for place in (*(f"{confined}/{name}" for name in inside), confined):
            files.remove_empty_directory(place)
        return not files.names(confined)
    except OSError as error:
        log.warning("%s cannot be removed: %s", directory, error)
        return None


def _roots() -> SavepointRoots:
    return SavepointRoots(settings.STATE_ROOTS)


def _confined(path: str) -> str | None:
    """Return `path` without symbolic links if it is below a root that is not empty, else None."""
    for root in _nearest_first(path):
        try:
            directory = SavepointRoots([root]).resolve(path)
        except OutsideSavepointRoots:
            continue
        if files_for(root).names(canonical(root)):
            return directory
    return None


def _nearest_first(path: str) -> list[str]:
    """Return the roots, first those that contain `path` by name, so that another root that hangs does not delay it."""
    return sorted(settings.STATE_ROOTS, key=lambda root: not is_below(path, root))


def _in_thread(kind: str, path: str, read: Callable[[], T], time_limit: TimeLimit) -> T:
    """Run `read` within the time limit. `kind` separates short accesses from long ones, which have other threads."""
    named = next((root for root in settings.STATE_ROOTS if is_below(path, root)), "")
    return STORAGE_THREADS.run(f"{kind} {named}", path, read, time_limit)


def _check(directory: str) -> tuple[int | None, Reason | None]:
    """Return the checkpoint's ID, and the problem or None if the snapshot is complete."""
    metadata = _flink_metadata(directory)
    if metadata is None:
        return verify(directory).checkpoint_id, None
    return metadata.checkpoint_id, _missing(directory, metadata.files)


def _flink_metadata(directory: str) -> FlinkMetadata | None:
    """Return the metadata, or None if Flink did not write it."""
    try:
        content = files_for(directory).read(f"{directory}/{METADATA}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MetadataMissing(directory) from error
    return parse(content) if content.startswith(MAGIC) else None


def _missing(directory: str, needed: Iterable[NeededFile]) -> Reason | None:
    """Return the first file that is missing or has another size, or None.

    Each directory is listed once. Files outside the roots are not checked.
    """
    by_directory: dict[str, list[tuple[str, NeededFile]]] = defaultdict(list)
    for file in needed:
        location = f"{directory}/{file.location}" if file.relative else canonical(file.location)
        parent, _, name = location.rpartition("/")
        by_directory[parent].append((name, file))
    for parent, files in by_directory.items():
        if _confined(parent) is None:
            continue
        sizes = files_for(parent).sizes(parent)
        for name, file in files:
            path = f"{parent}/{name}"
            if name not in sizes:
                return SavepointReason.FILE_MISSING(file=path)
            if not file.fits(sizes[name]):
                return SavepointReason.FILE_OF_ANOTHER_SIZE(file=path, size=sizes[name], expected=file.size)
    return None


def _is_named_savepoint(directory: str) -> bool:
    return directory.rpartition("/")[2].startswith(SAVEPOINT)
