"""The checkpoints in a job's checkpoint directory, independent of any store."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.storage.errors import MetadataMissing, SnapshotUnusable
from checkpointing.storage.files import Files
from checkpointing.storage.layout import checkpoint_directory
from checkpointing.storage.locations import name
from checkpointing.storage.verification import read_metadata

logger = logging.getLogger(__name__)

_CHECKPOINT = re.compile(r"chk-(\d+)")


def checkpoint_ids(job_directory: str, files: Files) -> list[int]:
    """Return the IDs of all `chk-N`, complete or not, ascending."""
    matches = (_CHECKPOINT.fullmatch(entry) for entry in files.names(job_directory))
    return sorted(int(match[1]) for match in matches if match is not None)


def complete_checkpoints(job_directory: str, files: Files, known: Collection[int]) -> list[CompletedCheckpoint]:
    """Return the complete checkpoints whose IDs are not `known`. An unreadable one is logged and left out."""
    found = []
    for checkpoint_id in checkpoint_ids(job_directory, files):
        if checkpoint_id in known:
            continue
        try:
            found.append(read_metadata(checkpoint_directory(job_directory, checkpoint_id), files))
        except MetadataMissing:
            continue
        except SnapshotUnusable as error:
            logger.warning("a checkpoint that no store knows is left as it is: %s", error)
    return found


def checkpoint_id_of(location: str) -> int | None:
    """Return the ID in the name of a checkpoint's directory, or None for a savepoint."""
    match = _CHECKPOINT.fullmatch(name(location))
    return None if match is None else int(match[1])
