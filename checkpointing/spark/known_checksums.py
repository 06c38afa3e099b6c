"""What an attempt knows of its files' content without reading them: what a checkpoint before it says of them.

A driver remembers what it has found out; the next one would read the whole state again for its first checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.storage import read_metadata

log = logging.getLogger(__name__)


def known_checksums(directory: str | None, locations: Mapping[str, Path]) -> FileChecksums:
    """Those of the snapshot in `directory`, for files that the queries have at their `locations`, by query.

    Only of RocksDB's SST files, by far the most bytes: they carry unique names and are never written again. What cannot
    be read is read, as it would be anyway.
    """
    checksums = FileChecksums()
    if directory is None:
        return checksums
    try:
        checkpoint = read_metadata(directory)
    except OSError as error:
        log.info("every file is read anew: %s", error)
        return checksums
    for operator in checkpoint.operators:
        for file in (file for subtask in operator.subtasks for file in subtask.files):
            if operator.query in locations and file.path.endswith(".sst"):
                _learn(checksums, locations[operator.query] / file.path, file.size, file.checksum)
    return checksums


def _learn(checksums: FileChecksums, path: Path, size: int, checksum: str) -> None:
    try:
        is_same = path.stat().st_size == size
    except FileNotFoundError:
        return
    if is_same:
        checksums.learn(path, checksum)
