"""Reads a snapshot, checks that it is complete, and copies it to this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from checkpointing.daemon_threads import map_in_daemon_threads
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile
from checkpointing.storage.errors import MetadataMissing, SnapshotIncomplete, StateFileMissing
from checkpointing.storage.files import Files
from checkpointing.storage.layout import METADATA, SHARED, state_file_path
from checkpointing.storage.locations import canonical, is_local, name, parent
from checkpointing.storage.metadata import decode_metadata, encode_metadata
from checkpointing.storage.opening import files_for


def read_metadata(directory: str, files: Files | None = None) -> CompletedCheckpoint:
    """Return the checkpoint in `directory` (any location, also of its `_metadata`), with its current location.

    Raise SnapshotUnusable (see `errors`) if there is none that can be read.
    """
    directory = canonical(directory).removesuffix(f"/{METADATA}") or "/"
    try:
        content = (files or files_for(directory)).read(f"{directory}/{METADATA}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MetadataMissing(directory) from error
    return decode_metadata(content, directory)


def verify(directory: str, deep: bool = False, files: Files | None = None) -> CompletedCheckpoint:
    """Read the metadata and check that every file has its size (`deep`: and content). Raise SnapshotIncomplete."""
    checkpoint = read_metadata(directory, files)
    verify_files(checkpoint, files or files_for(checkpoint.location), deep)
    return checkpoint


def verify_files(checkpoint: CompletedCheckpoint, files: Files, deep: bool = False) -> None:
    """Check each distinct file once. SnapshotIncomplete names the first wrong one."""
    distinct = _distinct_files(checkpoint)
    _verify_sizes(checkpoint, distinct, files)
    if deep:
        _verify_content(checkpoint, distinct, files)


def _distinct_files(checkpoint: CompletedCheckpoint) -> list[StateFile]:
    return list({(file.location, file.size, file.checksum): file for file in checkpoint.files}.values())


def _verify_sizes(checkpoint: CompletedCheckpoint, distinct: list[StateFile], files: Files) -> None:
    """Check sizes by listing directories, many at a time: one request for each file would take minutes remotely."""
    paths = [state_file_path(checkpoint, file) for file in distinct]
    directories = list(dict.fromkeys(parent(path) for path in paths))
    found = map_in_daemon_threads(files.sizes, directories, files.transfers, "verify")
    listings = dict(zip(directories, found, strict=True))
    for file, path in zip(distinct, paths, strict=True):
        size = listings[parent(path)].get(name(path))
        if size is None:
            raise StateFileMissing(checkpoint.location, file.location)
        if size != file.size:
            raise SnapshotIncomplete(checkpoint.location, file.location, f"has {size} bytes instead of {file.size}")


def _verify_content(checkpoint: CompletedCheckpoint, distinct: list[StateFile], files: Files) -> None:
    def check(file: StateFile) -> None:
        if files.checksum(state_file_path(checkpoint, file), file.checksum) != file.checksum:
            raise _other_content(checkpoint, file)

    map_in_daemon_threads(check, distinct, files.transfers, "verify")


def _other_content(checkpoint: CompletedCheckpoint, file: StateFile) -> SnapshotIncomplete:
    return SnapshotIncomplete(checkpoint.location, file.location, "differs from what was saved (checksum)")


def local_copy(checkpoint: CompletedCheckpoint, directory: Path) -> CompletedCheckpoint:
    """Return a copy of `checkpoint` below `directory`, with every file checked, or `checkpoint` itself if it is local.

    Spark reads state from local files only, and no other process can read a job manager's memory.

    `directory` is created, and its content belongs to the caller. Raise SnapshotIncomplete, or another OSError.
    """
    if is_local(checkpoint.location):
        return checkpoint
    shared = None if checkpoint.shared_location is None else str(directory / SHARED)
    copy = dataclasses.replace(checkpoint, location=str(directory / name(checkpoint.location)), shared_location=shared)
    transfers = files_for(checkpoint.location).transfers
    map_in_daemon_threads(
        lambda file: _copy_file(checkpoint, copy, file), _distinct_files(checkpoint), transfers, "download"
    )
    Path(copy.location).mkdir(parents=True, exist_ok=True)
    (Path(copy.location) / METADATA).write_bytes(encode_metadata(copy))
    return copy


def _copy_file(source: CompletedCheckpoint, copy: CompletedCheckpoint, file: StateFile) -> None:
    path, target = state_file_path(source, file), Path(state_file_path(copy, file))
    try:
        found = files_for(path).get(path, target, file.checksum)
    except FileNotFoundError as error:
        raise SnapshotIncomplete(source.location, file.location, "is missing") from error
    if target.stat().st_size != file.size or found != file.checksum:
        raise _other_content(source, file)
