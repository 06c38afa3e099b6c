"""Where things lie, by name only: no access to any file.

<checkpoint directory>/<job id>/chk-<N>/_metadata, private files
                                shared/<sha256>
                                taskowned/
<savepoint directory>/savepoint-<first 6 of the job id>-<12 hex digits>/_metadata, all files
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.messages import StateFile
from checkpointing.storage.errors import StorageError, UnsafeLocation

METADATA = "_metadata"
SHARED = "shared"
TASK_OWNED = "taskowned"

_SNAPSHOT_DIRECTORY = re.compile(r"chk-\d+|savepoint-[0-9a-f]{6}-[0-9a-f]{12}")


def local_path(path: str) -> str:
    """The absolute local path that `path` (plain, or a `file:` URI as Flink writes it) names; not resolved."""
    if path.startswith("file:"):
        parts = urlsplit(path)
        if parts.netloc not in ("", "localhost"):
            raise StorageError(f"{path}: a file: address of another machine")
        path = unquote(parts.path)
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise StorageError(f"{path}: only local paths and file: addresses are supported")
    if not path.startswith("/") or "\x00" in path:
        raise StorageError(f"{path!r} is not an absolute path")
    return path


def checkpoint_directory(job_directory: str, checkpoint_id: int) -> str:
    return f"{job_directory}/chk-{checkpoint_id}"


def savepoint_name(job_id: str, random_hex: str) -> str:
    return f"savepoint-{job_id[:6]}-{random_hex[:12]}"


def is_snapshot_directory(path: str) -> bool:
    return _SNAPSHOT_DIRECTORY.fullmatch(PurePosixPath(path).name) is not None


def is_shared_location(location: str) -> bool:
    """Directly in the pool, and nothing else."""
    parts = location.split("/")
    return len(parts) == 2 and parts[0] == SHARED and parts[1] not in ("", ".", "..")


def is_safe_location(location: str) -> bool:
    """Relative, and it stays below where it starts."""
    return (
        bool(location) and "\x00" not in location and all(part not in ("", ".", "..") for part in location.split("/"))
    )


def state_file_path(checkpoint: CompletedCheckpoint, file: StateFile) -> str:
    """Where the bytes of `file` lie, for a checkpoint as `read_metadata` gives it: right also after a move."""
    if not is_safe_location(file.location):
        raise UnsafeLocation(f"{checkpoint.location}: {file.location!r} leads out of the snapshot")
    if checkpoint.properties.is_savepoint:
        return f"{checkpoint.location}/{file.location}"
    own = f"chk-{checkpoint.checkpoint_id}/"
    if file.location.startswith(own):
        return f"{checkpoint.location}/{file.location.removeprefix(own)}"
    return f"{PurePosixPath(checkpoint.location).parent}/{file.location}"
