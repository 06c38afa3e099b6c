"""Returns the `Files` of a location. All access to storage goes through this module."""

from __future__ import annotations

from checkpointing.storage.files import Files, LocalFiles
from checkpointing.storage.fsspec_files import fsspec_files
from checkpointing.storage.locations import JOB_MANAGER, canonical, scheme_of
from checkpointing.storage.memory_files import MemoryFiles

_LOCAL = LocalFiles()
# This process's own files: a job manager's checkpoints in memory, or files that a driver has not sent yet.
PROCESS_MEMORY = MemoryFiles()


def files_for(location: str) -> Files:
    """Return the files of the location's storage, without reading or connecting.

    Raise StorageError (UnknownScheme, DriverMissing) if no implementation can open it.
    """
    match scheme_of(location):
        case None:
            return _LOCAL
        case scheme if scheme == JOB_MANAGER:
            return PROCESS_MEMORY
        case _:
            return fsspec_files(canonical(location))
