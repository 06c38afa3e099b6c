"""Building a fresh checkpointLocation out of a snapshot, and putting a file sink's log back.

Never in place: a directory that has been ahead of the snapshot keeps state of the abandoned future, which Spark would
pick up in silence.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpointing.coordinator.checkpoint import CompletedCheckpoint, OperatorState
from checkpointing.messages import StateFile, Vertex, VertexKind
from checkpointing.spark.file_store import copy_verified
from checkpointing.spark.layout import SINK_PREFIX
from checkpointing.spark.staging import SINK_LOCATION
from checkpointing.storage import state_file_path


class RestoreRefused(Exception):
    """The snapshot does not fit the program, which no new try changes. The text names what would be left behind."""


class SnapshotDamaged(Exception):
    """A file of the snapshot cannot be read or is not what was saved; another snapshot, or another try, may do."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot read from its manifest, located where it lies now."""

    checkpoint: CompletedCheckpoint

    def path_of(self, file: StateFile) -> Path:
        return Path(state_file_path(self.checkpoint, file))

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(operator.query for operator in self.checkpoint.operators))

    def partitions(self, query: str) -> dict[int, int]:
        """Partitions by stateful operator: what a restored query keeps, whatever the configuration says now."""
        found = {}
        for operator in self._operators(query):
            if operator.kind is VertexKind.STATEFUL:
                for file in _files(operator):
                    found[int(file.path.split("/")[1])] = operator.parallelism
        return found

    def files(self, query: str, vertex_ids: frozenset[str]) -> list[StateFile]:
        """The query's files; those of a stateful operator only when it is among `vertex_ids`."""
        return [
            file
            for operator in self._operators(query)
            if operator.kind is not VertexKind.STATEFUL or operator.vertex_id in vertex_ids
            for file in _files(operator)
        ]

    def _operators(self, query: str) -> list[OperatorState]:
        return [operator for operator in self.checkpoint.operators if operator.query == query]


def _files(operator: OperatorState) -> list[StateFile]:
    return [file for subtask in operator.subtasks for file in subtask.files]


def check_fits(snapshot: Snapshot, vertices: Sequence[Vertex], *, allow_non_restored_state: bool) -> None:
    """RestoreRefused when state of the snapshot would be left behind without leave."""
    there = {vertex.id for vertex in vertices}
    left_out = [
        f"{operator.name!r} of query {operator.query!r}"
        for operator in snapshot.checkpoint.operators
        if operator.vertex_id not in there and _files(operator)
    ]
    if left_out and not allow_non_restored_state:
        raise RestoreRefused(
            f"Checkpoint {snapshot.checkpoint.checkpoint_id} has state that the program has no operator for: "
            f"{', '.join(left_out)}. Restore it with the program it was taken from, "
            "or allow non-restored state to leave this state behind."
        )


def restore_query(snapshot: Snapshot, query: str, vertices: Sequence[Vertex], location: Path) -> int | None:
    """Fill `location`, which must not exist, and rewind the query's file sink. The batch it continues after.

    None when the snapshot knows nothing of the query: it starts without state. SnapshotDamaged.
    """
    if query not in snapshot.queries:
        return None
    files = snapshot.files(query, frozenset(vertex.id for vertex in vertices))
    try:
        for file in files:
            if not file.path.startswith(SINK_PREFIX):
                _bring(snapshot.path_of(file), location / file.path, file)
        _rewind_file_sink(snapshot, {file.path: file for file in files if file.path.startswith(SINK_PREFIX)})
    except (OSError, ValueError) as error:
        raise SnapshotDamaged(f"Query {query!r} cannot be restored: {error}") from error
    return snapshot.checkpoint.batches[query]


def _bring(source: Path, target: Path, file: StateFile) -> None:
    """Link what carries its own unique name (RocksDB's SST files, by far the most bytes), copy everything else.

    A unique name is never written again, so that the query cannot reach the snapshot's bytes through the link.
    """
    if file.path.endswith(".sst"):
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.stat().st_size != file.size:
            raise ValueError(f"{source} is damaged: {source.stat().st_size} bytes, {file.size} are expected")
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            target.unlink(missing_ok=True)
        else:
            return
    copy_verified(source, target, file.size, file.sha256)


def _rewind_file_sink(snapshot: Snapshot, files: Mapping[str, StateFile]) -> None:
    """Put `_spark_metadata` back as it was: the sink skips batches that its log already has.

    The log of the abandoned future is kept under a hidden name beside it. Its data files stay: readers that follow the
    log, as Spark does, no longer see them.
    """
    if SINK_LOCATION not in files:
        return
    output = Path(snapshot.path_of(files[SINK_LOCATION]).read_text())
    log, fresh = output / "_spark_metadata", output / f"._spark_metadata.{uuid.uuid4().hex}"
    for path, file in files.items():
        if path != SINK_LOCATION:
            copy_verified(snapshot.path_of(file), fresh / path.rpartition("/")[2], file.size, file.sha256)
    fresh.mkdir(parents=True, exist_ok=True)
    if log.exists():
        log.rename(output / f"._spark_metadata.abandoned.{uuid.uuid4().hex}")
    fresh.rename(log)
