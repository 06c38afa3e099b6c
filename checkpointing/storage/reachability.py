"""Distinguishes a missing snapshot from unavailable storage.

A file system that is not mounted looks like one whose files were all deleted. A snapshot counts as missing only while
its parent directory exists and contains something else. A mount point without its file system is empty or missing. It
may also contain `shared` and a `chk-N` of a driver that was writing while the file system disappeared. So a job's
checkpoints on a local disk have `taskowned` next to them, which only the job manager creates.
"""

from __future__ import annotations

from collections.abc import Callable

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.storage.errors import MetadataMissing, StateFileMissing, StorageUnreachable
from checkpointing.storage.files import Files
from checkpointing.storage.layout import METADATA, TASK_OWNED, is_checkpoint_directory
from checkpointing.storage.locations import JOB_MANAGER, canonical, is_local, parent, scheme_of
from checkpointing.storage.opening import files_for
from checkpointing.storage.verification import read_metadata

_MISSING = (MetadataMissing, StateFileMissing)


def read_reachable(directory: str, read: Callable[[str], CompletedCheckpoint] = read_metadata) -> CompletedCheckpoint:
    """Return `read(directory)`. Call a snapshot unusable only if that is certain.

    Raises:
        SnapshotUnusable: the snapshot is damaged, or a part of it is missing although its storage is available.
        StorageUnreachable: a part of it is missing, and the storage may be unavailable.
        OSError: any other error means that the snapshot cannot be read now.
    """
    try:
        return read(directory)
    except _MISSING:
        require_storage(directory)
    # The storage may have become available after the first read. A file that is missing in both reads is missing.
    try:
        return read(directory)
    except _MISSING:
        require_storage(directory)
        raise


def require_storage(directory: str, files: Files | None = None) -> None:
    """Raise StorageUnreachable if the storage of the snapshot in `directory` may be unavailable.

    `files` replaces what the location would open.
    """
    location = canonical(directory).removesuffix(f"/{METADATA}")
    if scheme_of(location) == JOB_MANAGER:
        return
    holder = parent(location)
    names = (files or files_for(holder)).names(holder)
    if not names:
        raise StorageUnreachable(
            f"{directory}: {holder} is missing or holds nothing at all; its storage may not be mounted"
        )
    if is_local(location) and is_checkpoint_directory(location) and TASK_OWNED not in names:
        raise StorageUnreachable(f"{directory}: {holder} has no {TASK_OWNED}/; its storage may not be mounted")
