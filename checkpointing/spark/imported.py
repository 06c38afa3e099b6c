"""Makes a savepoint from Spark's own checkpoint locations: the state and offsets of queries that ran without Waymark.

Waymark only reads a location. It copies each file, so that later writes of a job do not change the location.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.clock import Clock
from checkpointing.ids import stable_id
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, SubtaskMetrics, TriggerCheckpoint, Vertex, VertexKind
from checkpointing.spark.plan import QueryPlan, vertex_id
from checkpointing.spark.snapshot import DurableSubtask, PoolLedger, SnapshotWriter
from checkpointing.spark.spark_location import SparkLocation, find, in_use
from checkpointing.spark.staging import QueryFiles, StagedBatch, file_name
from checkpointing.storage.checkpoint_storage import FileCheckpointStorage

_SHA256 = "0" * 64


def import_savepoint(
    locations: Mapping[str, str],
    storage_of: Callable[[str], FileCheckpointStorage],
    directory: str,
    entry_class: str,
    clock: Clock,
    scratch: Path,
) -> CompletedCheckpoint:
    """Copy the newest committed batch of each location into one new savepoint below `directory`.

    Args:
        locations: the checkpoint location of each query, by the query's name; or one of `restore.UNNAMED`.
        storage_of: the storage of a job, by the job's id. The savepoint gets an ID that no job has. It is the same for
        each import of the same queries, so they get batch numbers of one family (decision 132).
        entry_class: the program that the savepoint is for.
        scratch: an empty directory for temporary files. Its content is not needed afterwards.

    Raises:
        ImportRefused: a location cannot be used.
        OSError: storage fails.
    """
    started = clock.now_ms()
    imported = [
        stage_location(query, location, scratch / str(number))
        for number, (query, location) in enumerate(locations.items())
    ]
    staged = [batch for _, batch in imported]
    job_id = stable_id("import", *sorted(found.query_id for found, _ in imported))
    storage = storage_of(job_id)
    place = storage.initialize_location(1, CheckpointKind.SAVEPOINT, directory)
    try:
        trigger = TriggerCheckpoint("", 1, CheckpointKind.SAVEPOINT, started, 0, place.directory, None)
        operators = [operator for each in staged for operator in _written(each, trigger)]
        checkpoint = CompletedCheckpoint(
            job_id=job_id,
            job_name="imported",
            entry_class=entry_class,
            checkpoint_id=1,
            properties=CheckpointProperties(CheckpointKind.SAVEPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION),
            trigger_timestamp=started,
            completion_timestamp=clock.now_ms(),
            operators=tuple(operators),
            batches={each.files.query: each.batch for each in staged},
            location=place.directory,
            shared_location=None,
            imported_from=tuple(found.location for found, _ in imported),
            imported_queries=tuple(found.query_id for found, _ in imported),
        )
        storage.write_metadata(checkpoint)
    except BaseException:
        storage.discard_location(place)
        raise
    return checkpoint


def stage_location(query: str, location: str, scratch: Path) -> tuple[SparkLocation, StagedBatch]:
    """Copy the files for a restart after the location's newest committed batch into `scratch`. Raise ImportRefused."""
    found = find(location)
    try:
        for file in found.selected:
            target = scratch / file_name(file.path)
            found.files.get(f"{found.location}/{file.path}", target, _SHA256)
            if target.stat().st_size != file.size:
                raise in_use(found.location)
        plan = _plan(query, found)
    except FileNotFoundError as error:
        raise in_use(found.location) from error
    found.check_unchanged()
    return found, StagedBatch(QueryFiles(plan, scratch, None), found.batch, found.selected, scratch)


def _plan(query: str, found: SparkLocation) -> QueryPlan:
    """Return the operators that the files show. A restore finds operators by their places, not by their names."""
    places = [(VertexKind.SOURCE, index, 1) for index in range(max(found.num_sources, 1))]
    places += [(VertexKind.STATEFUL, index, number) for index, number in found.partitions.items()]
    places.append((VertexKind.SINK, 0, 1))
    vertices = {
        (kind, index): Vertex(vertex_id(query, kind, index), f"{kind.value} {index}", kind, number, query)
        for kind, index, number in places
    }
    return QueryPlan(query, vertices)


def _written(staged: StagedBatch, trigger: TriggerCheckpoint) -> list[OperatorState]:
    subtasks: dict[str, list[DurableSubtask]] = {}
    for each in SnapshotWriter(trigger, FileChecksums(), PoolLedger()).write(staged):
        subtasks.setdefault(each.vertex.id, []).append(each)
    return [
        OperatorState(v.id, v.name, v.kind, v.query, v.parallelism, tuple(_state(each) for each in subtasks[v.id]))
        for v in staged.files.plan.vertices
    ]


def _state(subtask: DurableSubtask) -> SubtaskState:
    metrics = SubtaskMetrics(checkpointed_size=subtask.new_bytes, state_size=subtask.size)
    return SubtaskState(subtask.subtask, metrics, subtask.files, 0)
