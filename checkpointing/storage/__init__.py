"""Storage of snapshots: layout, metadata with checksums, verification, disposal. All functions block."""

from checkpointing.storage.checkpoint_storage import FileCheckpointStorage, dispose_savepoint
from checkpointing.storage.errors import (
    AccessDenied,
    DriverMissing,
    MetadataForeign,
    MetadataFromNewerVersion,
    MetadataMissing,
    MetadataTampered,
    MetadataTruncated,
    OutsideSavepointRoots,
    SnapshotIncomplete,
    SnapshotUnusable,
    StorageError,
    StorageFull,
    StorageSilent,
    StorageUnreachable,
    UnknownScheme,
    UnsafeLocation,
)
from checkpointing.storage.layout import state_file_path
from checkpointing.storage.locations import canonical, is_local, local_path
from checkpointing.storage.opening import files_for
from checkpointing.storage.roots import SavepointRoots
from checkpointing.storage.verification import local_copy, read_metadata, verify

__all__ = [
    "AccessDenied",
    "DriverMissing",
    "FileCheckpointStorage",
    "MetadataForeign",
    "MetadataFromNewerVersion",
    "MetadataMissing",
    "MetadataTampered",
    "MetadataTruncated",
    "OutsideSavepointRoots",
    "SavepointRoots",
    "SnapshotIncomplete",
    "SnapshotUnusable",
    "StorageError",
    "StorageFull",
    "StorageSilent",
    "StorageUnreachable",
    "UnknownScheme",
    "UnsafeLocation",
    "canonical",
    "dispose_savepoint",
    "files_for",
    "is_local",
    "local_copy",
    "local_path",
    "read_metadata",
    "state_file_path",
    "verify",
]
