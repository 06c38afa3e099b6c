"""The errors of checkpoint storage and of snapshots in it.

StorageError (an OSError)
├── OutsideSavepointRoots      the path is not under a configured root
├── UnsafeLocation             a request to remove or read something that does not belong to a checkpoint
├── NotOurPool                 a request to remove shared files of a job that another job manager may lead by now
├── UnknownScheme              no file system with this name can store snapshots
├── DriverMissing              the Python package for the storage is not installed; the text names it
├── AccessDenied               the storage refuses: credentials, permissions, a read-only file system
├── StorageUnreachable         no server answers, or the connection was lost
│   └── StorageSilent          no answer in time; the call may still be waiting for one
├── StorageFull
└── SnapshotUnusable           this directory cannot be restored
    ├── MetadataMissing        no `_metadata`: never completed, or no snapshot at all
    ├── MetadataForeign        a `_metadata` that Waymark did not write
    ├── MetadataTruncated      cut off or not readable as a whole
    ├── MetadataTampered       its checksum does not match, or its fields are not those of a checkpoint
    ├── MetadataFromNewerVersion
    └── SnapshotIncomplete     a file has another size or content; names the file
        └── StateFileMissing
"""

from __future__ import annotations

from collections.abc import Sequence


class StorageError(OSError):
    """Something is wrong with checkpoint storage. The text says what and where."""


class OutsideSavepointRoots(StorageError):
    def __init__(self, path: str, roots: Sequence[str]) -> None:
        allowed = ", ".join(roots) if roots else "none is configured"
        super().__init__(f"{path} is outside the savepoint directories (allowed: {allowed})")
        self.path = path
        self.roots = tuple(roots)


class UnsafeLocation(StorageError):
    pass


class NotOurPool(StorageError):
    pass


class UnknownScheme(StorageError):
    pass


class DriverMissing(StorageError):
    def __init__(self, location: str, package: str) -> None:
        super().__init__(f"{location}: the package {package} is missing; pip install {package}")
        self.package = package


class AccessDenied(StorageError):
    pass


class StorageUnreachable(StorageError):
    pass


class StorageSilent(StorageUnreachable):
    """A request to the storage was not answered in time. Its outcome is unknown."""

    def __init__(self, what: str, silence_s: float) -> None:
        super().__init__(f"{what} has not answered for {silence_s:g} s")
        self.silence_s = silence_s


class StorageFull(StorageError):
    pass


class SnapshotUnusable(StorageError):
    """A snapshot cannot be restored. `directory` is spelled as in the request."""

    def __init__(self, directory: str, problem: str) -> None:
        super().__init__(f"{directory}: {problem}")
        self.directory = directory
        self.problem = problem


class MetadataMissing(SnapshotUnusable):
    def __init__(self, directory: str) -> None:
        super().__init__(directory, "there is no _metadata; it is not a completed checkpoint or savepoint")


class MetadataForeign(SnapshotUnusable):
    def __init__(self, directory: str) -> None:
        super().__init__(directory, "_metadata was not written by Waymark")


class MetadataTruncated(SnapshotUnusable):
    pass


class MetadataTampered(SnapshotUnusable):
    pass


class MetadataFromNewerVersion(SnapshotUnusable):
    def __init__(self, directory: str, version: object, supported: int) -> None:
        super().__init__(directory, f"_metadata has version {version}, this release reads up to {supported}")


class SnapshotIncomplete(SnapshotUnusable):
    """A file of the snapshot is wrong. `file` is the first one found, by its name in the metadata."""

    def __init__(self, directory: str, file: str, problem: str) -> None:
        super().__init__(directory, f"{file} {problem}")
        self.file = file


class StateFileMissing(SnapshotIncomplete):
    def __init__(self, directory: str, file: str) -> None:
        super().__init__(directory, file, "is missing")
