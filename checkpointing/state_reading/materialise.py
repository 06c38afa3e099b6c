"""A temporary checkpointLocation from which Spark reads one operator's state. It consists of links into a snapshot."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpointing.checkpoint_location.schema_paths import relocate_schemas
from checkpointing.model.checkpoint import CompletedCheckpoint, OperatorState
from checkpointing.model.messages import StateFile, VertexKind
from checkpointing.state_reading.contents import files_of, operator_number
from checkpointing.storage import SnapshotIncomplete, files_for, local_copy, state_file_path
from checkpointing.storage.verification import verify_files

_LOGS = ("metadata", "offsets", "commits")


@contextmanager
def materialised(checkpoint: CompletedCheckpoint, query: str, number: int) -> Iterator[Path]:
    """Yield a checkpointLocation for reading only, because its files belong to the snapshot.

    Other files of the snapshot are neither checked nor, from remote storage, downloaded. Raise SnapshotIncomplete, or
    another OSError of storage.
    """
    wanted = _with_needed_files(checkpoint, query, number)
    verify_files(wanted, files_for(wanted.location))
    with tempfile.TemporaryDirectory(prefix="waymark-state-") as directory:
        local = local_copy(wanted, Path(directory) / "fetched")
        location = Path(directory) / "location"
        for file in local.files:
            link = location / file.path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(state_file_path(local, file))
        try:
            relocate_schemas(location)
        except ValueError as error:
            raise SnapshotIncomplete(checkpoint.location, f"state/{number}/_metadata", str(error)) from error
        yield location


def _with_needed_files(checkpoint: CompletedCheckpoint, query: str, number: int) -> CompletedCheckpoint:
    """Return the checkpoint with only the files that are needed."""
    operators = tuple(
        dataclasses.replace(
            operator,
            subtasks=tuple(
                dataclasses.replace(subtask, files=tuple(file for file in subtask.files if _is_needed(operator, file)))
                for subtask in operator.subtasks
            ),
        )
        for operator in checkpoint.operators
        if operator.query == query and _has_operator_number(operator, number)
    )
    return dataclasses.replace(checkpoint, operators=operators)


def _has_operator_number(operator: OperatorState, number: int) -> bool:
    if operator.kind is not VertexKind.STATEFUL:
        return True
    return bool(files_of(operator)) and operator_number(operator) == number


def _is_needed(operator: OperatorState, file: StateFile) -> bool:
    return operator.kind is VertexKind.STATEFUL or file.path.partition("/")[0] in _LOGS
