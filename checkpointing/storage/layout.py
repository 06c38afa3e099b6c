"""The layout of snapshots, by name only: no access to any file.

<checkpoint directory>/<job id>/chk-<N>/_metadata, private files
                                shared/<checksum>
                                taskowned/
<savepoint directory>/savepoint-<first 6 of the job id>-<12 hex digits>/_metadata, <query>/ with all its files

A file has a temporary name until it is complete.
"""

from __future__ import annotations

import re
import uuid

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile
from checkpointing.storage.errors import UnsafeLocation
from checkpointing.storage.locations import canonical, name, parent

METADATA = "_metadata"
SHARED = "shared"
TASK_OWNED = "taskowned"

# The first parts of a query's file names: those of its checkpointLocation, and those of a file sink.
QUERY_ENTRIES = frozenset(
    {"metadata", "offsets", "commits", "sources", "state", "timelines", "operators", "sink"},
)

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_SNAPSHOT_DIRECTORY = re.compile(r"chk-\d+|savepoint-[0-9a-f]{6}-[0-9a-f]{12}")


def checkpoint_directory(job_directory: str, checkpoint_id: int) -> str:
    return f"{job_directory}/chk-{checkpoint_id}"


def savepoint_name(job_id: str, random_hex: str) -> str:
    return f"savepoint-{job_id[:6]}-{random_hex[:12]}"


def new_savepoint_directory(target: str, job_id: str) -> str:
    """Return a directory below `target` for a savepoint of the job that is about to begin. Raise StorageError."""
    return f"{canonical(target).rstrip('/')}/{savepoint_name(job_id, uuid.uuid4().hex)}"


def is_snapshot_directory(path: str) -> bool:
    return _SNAPSHOT_DIRECTORY.fullmatch(name(path)) is not None


def is_checkpoint_directory(path: str) -> bool:
    return is_snapshot_directory(path) and name(path).startswith("chk-")


def is_savepoint_directory_of(path: str, job_id: str) -> bool:
    return is_snapshot_directory(path) and name(path).startswith(f"savepoint-{job_id[:6]}-")


def temporary_name(final: str) -> str:
    return f".{final}.{uuid.uuid4().hex}.tmp"


def is_temporary(entry: str) -> bool:
    return _TEMPORARY.fullmatch(entry) is not None


def is_shared_location(location: str) -> bool:
    """Return whether the location is a file directly in the pool."""
    parts = location.split("/")
    return len(parts) == 2 and parts[0] == SHARED and parts[1] not in ("", ".", "..")


def unused_file(name_in_pool: str) -> StateFile:
    """Return a file of the pool for its removal, which needs only the name."""
    return StateFile("", f"{SHARED}/{name_in_pool}", 0, "", shared=True)


def is_safe_location(location: str) -> bool:
    """Return whether the location is relative and stays below its start."""
    return (
        bool(location) and "\x00" not in location and all(part not in ("", ".", "..") for part in location.split("/"))
    )


def state_file_path(checkpoint: CompletedCheckpoint, file: StateFile) -> str:
    """Return the path of `file`, for a checkpoint from `read_metadata`.

    The path is also correct after the snapshot was moved.
    """
    if not is_safe_location(file.location):
        raise UnsafeLocation(f"{checkpoint.location}: {file.location!r} leads out of the snapshot")
    if checkpoint.properties.is_savepoint:
        return f"{checkpoint.location}/{file.location}"
    own = f"chk-{checkpoint.checkpoint_id}/"
    if file.location.startswith(own):
        return f"{checkpoint.location}/{file.location.removeprefix(own)}"
    return f"{parent(checkpoint.location)}/{file.location}"
