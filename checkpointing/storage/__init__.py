"""Where snapshots lie: layout, metadata with checksums, verification, shared files, disposal. Blocking throughout."""

from checkpointing.storage.checkpoint_storage import FileCheckpointStorage, dispose_savepoint
from checkpointing.storage.errors import (
    MetadataForeign,
    MetadataFromNewerVersion,
    MetadataMissing,
    MetadataTampered,
    MetadataTruncated,
    OutsideSavepointRoots,
    SnapshotIncomplete,
    SnapshotUnusable,
    StorageError,
    UnsafeLocation,
)
from checkpointing.storage.layout import local_path, state_file_path
from checkpointing.storage.roots import SavepointRoots
from checkpointing.storage.shared_state import ReferenceCountingRegistry
from checkpointing.storage.verification import read_metadata, verify

__all__ = [
    "FileCheckpointStorage",
    "MetadataForeign",
    "MetadataFromNewerVersion",
    "MetadataMissing",
    "MetadataTampered",
    "MetadataTruncated",
    "OutsideSavepointRoots",
    "ReferenceCountingRegistry",
    "SavepointRoots",
    "SnapshotIncomplete",
    "SnapshotUnusable",
    "StorageError",
    "UnsafeLocation",
    "dispose_savepoint",
    "local_path",
    "read_metadata",
    "state_file_path",
    "verify",
]
