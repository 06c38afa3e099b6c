"""Checkpoints and savepoints where they lie, for engines that cannot look at them and for clusters that are gone.

Only below WAYMARK_STATE_ROOTS, and only where a root holds anything: an empty one may be a mount that is missing, and
tells nothing. Flink's and our own. Nothing here waits for longer than its caller's patience: StorageSilent.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
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
from monitoring.savepoints.looking import LOOKS, Patience, StorageSilent
from monitoring.state_roots import is_below

T = TypeVar("T")

# Listing a directory and reading a `_metadata`, also while somebody waits in front of a page; looking at every file of
# a state, and removing one, while nobody does. Both are shorter than an engine's call may take.
LISTED_WITHIN_S = 5.0
READ_WITHIN_S = 40.0
METADATA = "_metadata"
# What Flink and we call the directory of a savepoint.
SAVEPOINT = "savepoint-"
# And that of a checkpoint, in its run's directory; of so many of them it is looked whether they are complete.
_CHECKPOINT = re.compile(r"chk-(\d+)")
CHECKPOINTS = 20

log = logging.getLogger(__name__)


async def validate(
    client: FlinkClient, path: str, entry_class: str | None = None, *, limit_s: float = READ_WITHIN_S
) -> SavepointValidation | StorageSilent | None:
    """The engine's word on the state at `path`; of an engine that has none, what lies there. None: nobody can tell."""
    answer = await client.validate_savepoint(path, entry_class)
    return answer if answer is not None else await asyncio.to_thread(_look_or_silence, path, Patience(limit_s))


def _look_or_silence(path: str, patience: Patience) -> SavepointValidation | StorageSilent | None:
    try:
        return look(path, patience)
    except StorageSilent as silent:
        return silent


def within_reach(path: str) -> bool:
    """False, too, where that is not told in time."""
    try:
        return _looked("", path, lambda: _confined(path), Patience(LISTED_WITHIN_S)) is not None
    except (StorageSilent, StorageError):
        return False


def look(path: str, patience: Patience) -> SavepointValidation | None:
    """Are all its files there, each with its size? None where that cannot be told from here. StorageSilent."""
    return _looked("files", path, lambda: _judged(path), patience)


def _judged(path: str) -> SavepointValidation | None:
    try:
        directory = _confined(path)
        if directory is None:
            return None
        checkpoint_id, problem = _look(directory)
    except SnapshotUnusable as unusable:
        missing = isinstance(unusable, MetadataMissing)
        return SavepointValidation(False, unusable.problem, None, "", "", None, None, missing)
    except CutShort as unreadable:
        checkpoint_id, problem = None, SavepointReason.METADATA_UNREADABLE(file=METADATA, error=str(unreadable))
    except (OSError, NotFlinkMetadata) as error:
        log.warning("%s cannot be looked at: %s", path, error)
        return None
    return SavepointValidation(problem is None, problem or "", checkpoint_id, "", "", None, None)


def checkpoints_in(directory: str, patience: Patience) -> list[int] | None:
    """The numbers of the newest checkpoints in a run's directory, the last one first; none where it is missing. None
    where that cannot be told from here. StorageSilent."""
    return _looked("", directory, lambda: _checkpoints_in(directory), patience)


def _checkpoints_in(directory: str) -> list[int] | None:
    try:
        confined = _confined(directory)
        if confined is None:
            return None
        files = files_for(confined)
        numbered = [found for name in files.names(confined) if (found := _CHECKPOINT.fullmatch(name))]
        newest = sorted(numbered, key=lambda found: int(found[1]), reverse=True)[:CHECKPOINTS]
        # Flink and we write it last.
        return [int(found[1]) for found in newest if METADATA in files.names(f"{confined}/{found[0]}")]
    except OSError as error:
        log.warning("%s cannot be looked at: %s", directory, error)
        return None


def size_of(path: str, patience: Patience) -> int | None:
    """Bytes of all the files that the state at `path` needs, as it says itself. None where that cannot be told.
    StorageSilent."""
    return _looked("", path, lambda: _size_of(path), patience)


def _size_of(path: str) -> int | None:
    try:
        directory = _confined(path)
        if directory is None:
            return None
        metadata = _flink_metadata(directory)
        if metadata is None:
            return read_metadata(directory).state_size
        # Of a file that many states share, the furthest of its parts.
        sizes: dict[str, int] = defaultdict(int)
        for file in metadata.files:
            sizes[file.location] = max(sizes[file.location], file.size)
        return sum(sizes.values()) + files_for(directory).sizes(directory)[METADATA]
    except (OSError, SnapshotUnusable, NotFlinkMetadata, KeyError) as error:
        log.warning("%s cannot be looked at: %s", path, error)
        return None


def remove(path: str, patience: Patience) -> None:
    """Remove a savepoint's files; those of one that was removed in part, too.

    Raises:
        SnapshotClaimed: a job has taken it over.
        StorageError, SnapshotUnusable, NotFlinkMetadata: it is not a savepoint that can be removed.
        FileNotFoundError: there is nothing at all.
        StorageSilent: the storage does not answer; the removal may go on by itself.
    """
    _looked("removals", path, lambda: _remove(path), patience)


def _remove(path: str) -> None:
    directory = _roots().confine(path)
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
    # It goes first: what is left of a savepoint never looks like a whole one.
    files.remove_file(f"{directory}/{METADATA}")
    files.remove_tree(directory)


def remove_empty(directory: str, inside: Iterable[str], patience: Patience) -> bool | None:
    """Remove a directory that holds nothing but empty directories of these names. False: it holds more and stays. None
    where that cannot be told from here. StorageSilent."""
    return _looked("removals", directory, lambda: _remove_empty(directory, inside), patience)


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
    """`path` without symbolic links, when it is below a root in which there is anything."""
    for root in _nearest_first(path):
        try:
            directory = SavepointRoots([root]).confine(path)
        except OutsideSavepointRoots:
            continue
        if files_for(root).names(canonical(root)):
            return directory
    return None


def _nearest_first(path: str) -> list[str]:
    """Only one that `path` does not name is looked at after the others: a root that hangs holds up none but itself."""
    return sorted(settings.STATE_ROOTS, key=lambda root: not is_below(path, root))


def _looked(kind: str, path: str, read: Callable[[], T], patience: Patience) -> T:
    """`kind`: short looks have places of their own, which the long ones do not take."""
    named = next((root for root in settings.STATE_ROOTS if is_below(path, root)), "")
    return LOOKS.look(f"{kind} {named}", path, read, patience)


def _look(directory: str) -> tuple[int | None, Reason | None]:
    """The checkpoint's id, and what is wrong; None when it is complete."""
    metadata = _flink_metadata(directory)
    if metadata is None:
        return verify(directory).checkpoint_id, None
    return metadata.checkpoint_id, _missing(directory, metadata.files)


def _flink_metadata(directory: str) -> FlinkMetadata | None:
    """None for what Flink did not write."""
    try:
        content = files_for(directory).read(f"{directory}/{METADATA}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MetadataMissing(directory) from error
    return parse(content) if content.startswith(MAGIC) else None


def _missing(directory: str, needed: Iterable[NeededFile]) -> Reason | None:
    """The first file that is not there or has another size. One listing a directory; files outside the roots are left
    to the engine."""
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
