"""The one door to storage: which `Files` a location belongs to."""

from __future__ import annotations

from checkpointing.storage.files import Files, LocalFiles
from checkpointing.storage.fsspec_files import fsspec_files
from checkpointing.storage.locations import JOB_MANAGER, canonical, scheme_of
from checkpointing.storage.memory_files import MemoryFiles

_LOCAL = LocalFiles()
# What this process keeps for itself: the job manager its jobs' checkpoints, a driver what it has not sent yet.
PROCESS_MEMORY = MemoryFiles()


def files_for(location: str) -> Files:
    """StorageError (UnknownScheme, DriverMissing) when nothing can open it; nothing is read or connected yet."""
    match scheme_of(location):
        case None:
            return _LOCAL
        case scheme if scheme == JOB_MANAGER:
            return PROCESS_MEMORY
        case _:
            return fsspec_files(canonical(location))
