"""Reading a snapshot back and finding out whether it is whole, before anything is stopped or started for it."""

from __future__ import annotations

from checkpointing.daemon_threads import map_in_daemon_threads
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile
from checkpointing.storage.errors import MetadataMissing, SnapshotIncomplete, StateFileMissing
from checkpointing.storage.files import Files
from checkpointing.storage.layout import METADATA, state_file_path
from checkpointing.storage.locations import canonical, name, parent
from checkpointing.storage.metadata import decode_metadata
from checkpointing.storage.opening import files_for


def read_metadata(directory: str, files: Files | None = None) -> CompletedCheckpoint:
    """The checkpoint in `directory` (any location, also of its `_metadata`), located where it lies now.

    SnapshotUnusable (see `errors`) when there is none that can be read.
    """
    directory = _without_metadata_name(canonical(directory))
    try:
        content = (files or files_for(directory)).read(f"{directory}/{METADATA}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MetadataMissing(directory) from error
    return decode_metadata(content, directory)


def verify(directory: str, deep: bool = False, files: Files | None = None) -> CompletedCheckpoint:
    """`read_metadata`, and every file is there with its size (`deep`: and content), else SnapshotIncomplete."""
    checkpoint = read_metadata(directory, files)
    verify_files(checkpoint, files or files_for(checkpoint.location), deep)
    return checkpoint


def verify_files(checkpoint: CompletedCheckpoint, files: Files, deep: bool = False) -> None:
    """Each distinct file once. SnapshotIncomplete names the first that is wrong."""
    distinct = distinct_files(checkpoint)
    _verify_sizes(checkpoint, distinct, files)
    if deep:
        _verify_content(checkpoint, distinct, files)


def distinct_files(checkpoint: CompletedCheckpoint) -> list[StateFile]:
    return list({(file.location, file.size, file.checksum): file for file in checkpoint.files}.values())


def _verify_sizes(checkpoint: CompletedCheckpoint, distinct: list[StateFile], files: Files) -> None:
    """One listing a directory, many at a time: a question for each file would take a remote storage minutes."""
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
            raise other_content(checkpoint, file)

    map_in_daemon_threads(check, distinct, files.transfers, "verify")


def other_content(checkpoint: CompletedCheckpoint, file: StateFile) -> SnapshotIncomplete:
    return SnapshotIncomplete(checkpoint.location, file.location, "has another content than was saved (checksum)")


def _without_metadata_name(path: str) -> str:
    return path.removesuffix(f"/{METADATA}") or "/"
