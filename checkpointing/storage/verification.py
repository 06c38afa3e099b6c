"""Reading a snapshot back and finding out whether it is whole, before anything is stopped or started for it."""

from __future__ import annotations

from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.messages import StateFile
from checkpointing.storage.errors import MetadataMissing, SnapshotIncomplete
from checkpointing.storage.files import Files, LocalFiles
from checkpointing.storage.layout import METADATA, local_path, state_file_path
from checkpointing.storage.metadata import decode_metadata

_LOCAL = LocalFiles()


def read_metadata(directory: str, files: Files = _LOCAL) -> CompletedCheckpoint:
    """The checkpoint in `directory` (a path or `file:` URI, also of its `_metadata`), located where it lies now.

    SnapshotUnusable (see `errors`) when there is none that can be read.
    """
    directory = _without_metadata_name(local_path(directory))
    try:
        content = files.read(f"{directory}/{METADATA}")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MetadataMissing(directory) from error
    return decode_metadata(content, directory)


def verify(directory: str, deep: bool = False, files: Files = _LOCAL) -> CompletedCheckpoint:
    """`read_metadata`, and every file is there with its size (`deep`: and content), else SnapshotIncomplete."""
    checkpoint = read_metadata(directory, files)
    verify_files(checkpoint, files, deep)
    return checkpoint


def verify_files(checkpoint: CompletedCheckpoint, files: Files, deep: bool = False) -> None:
    """Each distinct file once. SnapshotIncomplete names the first that is wrong."""
    for file in _distinct(checkpoint.files):
        _verify_file(checkpoint, file, deep, files)


def _verify_file(checkpoint: CompletedCheckpoint, file: StateFile, deep: bool, files: Files) -> None:
    path = state_file_path(checkpoint, file)
    try:
        size = files.size(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SnapshotIncomplete(checkpoint.location, file.location, "is missing") from error
    if size != file.size:
        raise SnapshotIncomplete(checkpoint.location, file.location, f"has {size} bytes instead of {file.size}")
    if deep and files.sha256(path) != file.sha256:
        raise SnapshotIncomplete(checkpoint.location, file.location, "has another content than was saved (SHA-256)")


def _distinct(files: tuple[StateFile, ...]) -> list[StateFile]:
    return list({(file.location, file.size, file.sha256): file for file in files}.values())


def _without_metadata_name(path: str) -> str:
    stripped = path.rstrip("/") or "/"
    return stripped.removesuffix(f"/{METADATA}") or "/"
