"""What can be wrong with checkpoint storage and with a snapshot in it.

StorageError (an OSError)
├── OutsideSavepointRoots      the path is not under a configured root
├── UnsafeLocation             asked to remove or read something that is no part of a checkpoint
├── NotOurPool                 asked to remove shared files of a job that another job manager may lead by now
├── UnknownScheme              no file system of that name can keep snapshots
├── DriverMissing              the Python package that speaks to it is not installed; names it
├── AccessDenied               the storage refuses: credentials, permissions, a read-only file system
├── StorageUnreachable         nobody answers, or the connection was lost
│   └── StorageSilent          no answer in time; the call may still be waiting for one
├── StorageFull
└── SnapshotUnusable           nobody can restore from this directory
    ├── MetadataMissing        no `_metadata`: never completed, or no snapshot at all
    ├── MetadataForeign        a `_metadata` that Waymark did not write
    ├── MetadataTruncated      cut off or not readable as a whole
    ├── MetadataTampered       its checksum does not fit, or its fields make no checkpoint
    ├── MetadataFromNewerVersion
    └── SnapshotIncomplete     a file has another size or content; names the file
        └── StateFileMissing
"""

from __future__ import annotations

from collections.abc import Sequence


class StorageError(OSError):
    """Something is wrong with checkpoint storage; the text says what and where."""


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
    """`what` was not answered in time. Nothing is known of it."""

    def __init__(self, what: str, silence_s: float) -> None:
        super().__init__(f"{what} has not answered for {silence_s:g} s")
        self.silence_s = silence_s


class StorageFull(StorageError):
    pass


class SnapshotUnusable(StorageError):
    """`directory` is the snapshot's, as it was asked for."""

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
    """`file` is the first file found wrong, as the metadata names it."""

    def __init__(self, directory: str, file: str, problem: str) -> None:
        super().__init__(directory, f"{file} {problem}")
        self.file = file


class StateFileMissing(SnapshotIncomplete):
    def __init__(self, directory: str, file: str) -> None:
        super().__init__(directory, file, "is missing")
