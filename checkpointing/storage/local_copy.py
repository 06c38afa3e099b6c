"""A snapshot brought to this machine: Spark reads state from local files, and nobody reads a job manager's memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from checkpointing.daemon_threads import map_in_daemon_threads
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile
from checkpointing.storage.errors import SnapshotIncomplete
from checkpointing.storage.layout import METADATA, SHARED, state_file_path
from checkpointing.storage.locations import is_local, name
from checkpointing.storage.metadata import encode_metadata
from checkpointing.storage.opening import files_for
from checkpointing.storage.verification import distinct_files, other_content


def local_copy(checkpoint: CompletedCheckpoint, directory: Path) -> CompletedCheckpoint:
    """`checkpoint` as it lies below `directory`, every file checked by its checksum; itself when it is local already.

    `directory` is made; what is in it belongs to the caller. SnapshotIncomplete, or another OSError.
    """
    if is_local(checkpoint.location):
        return checkpoint
    shared = None if checkpoint.shared_location is None else str(directory / SHARED)
    copy = dataclasses.replace(checkpoint, location=str(directory / name(checkpoint.location)), shared_location=shared)
    transfers = files_for(checkpoint.location).transfers
    map_in_daemon_threads(
        lambda file: _bring(checkpoint, copy, file), distinct_files(checkpoint), transfers, "download"
    )
    Path(copy.location).mkdir(parents=True, exist_ok=True)
    (Path(copy.location) / METADATA).write_bytes(encode_metadata(copy))
    return copy


def _bring(source: CompletedCheckpoint, copy: CompletedCheckpoint, file: StateFile) -> None:
    path, target = state_file_path(source, file), Path(state_file_path(copy, file))
    try:
        found = files_for(path).get(path, target, file.checksum)
    except FileNotFoundError as error:
        raise SnapshotIncomplete(source.location, file.location, "is missing") from error
    if target.stat().st_size != file.size or found != file.checksum:
        raise other_content(source, file)
