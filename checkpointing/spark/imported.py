"""Makes a savepoint from Spark's own checkpoint locations: the state and offsets of queries that ran without Waymark.

Waymark only reads a location. It copies each file, so that later writes of a job do not change the location.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from checkpointing.checkpoint_location.checksums import check_file
from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.checkpoint_location.layout import IncompleteBatch, check_source_logs, select_batch
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
from checkpointing.model.refusals import Refusal
from checkpointing.spark.query_plan import QueryPlan, vertex_id
from checkpointing.spark.snapshot import DurableSubtask, PoolLedger, SnapshotWriter
from checkpointing.spark.spark_location import ImportRefused, SparkLocation, find, find_running, in_use
from checkpointing.spark.staging import QueryFiles, StagedBatch, file_name
from checkpointing.storage.checkpoint_storage import FileCheckpointStorage
from checkpointing.storage.files import Files

# How often the copy of a running query's files begins again.
ATTEMPTS = 5
_SHA256 = "0" * 64
_CHANGED = {refusal.value[0] for refusal in (Refusal.IN_USE, Refusal.BATCH_INCOMPLETE)}
# Copies a query's files for a restart. The arguments: the query's name, its location, and a directory for the copy.
Stage = Callable[[str, str, Path], tuple[SparkLocation, StagedBatch]]


def stage_location(query: str, location: str, scratch: Path) -> tuple[SparkLocation, StagedBatch]:
    """Copy to `scratch` the files that a restart after the newest committed batch needs. Raise ImportRefused.

    No query may be running there.
    """
    found = find(location)
    staged = _copied(query, found, scratch)
    found.check_unchanged()
    return found, staged


def stage_running(
    query: str, location: str, scratch: Path, *, query_id: str, files: Files | None = None
) -> tuple[SparkLocation, StagedBatch]:
    """Copy the files for a restart after the newest committed batch, although the query may be running.

    If Spark removes or replaces files meanwhile, begin again with the batch that is the newest one then.

    Args:
        query_id: the query that must be there, as in Spark's `metadata`.
        files: replace what the location would open.

    Raises:
        ImportRefused: the location cannot be used, belongs to another query, or changes too fast.
        OSError: storage fails.
    """
    problem = in_use(location)
    for attempt in range(ATTEMPTS):
        target = scratch / str(attempt)
        try:
            return _copied_running(query, location, target, query_id, files)
        except ImportRefused as refused:
            if refused.code not in _CHANGED:
                raise
            problem = refused
        except FileNotFoundError:
            problem = in_use(location)
        shutil.rmtree(target, ignore_errors=True)
    if problem.code == Refusal.BATCH_INCOMPLETE.value[0]:
        raise problem
    raise ImportRefused(Refusal.TOO_FAST, location=location, count=ATTEMPTS) from problem


def _copied_running(
    query: str, location: str, target: Path, query_id: str, files: Files | None
) -> tuple[SparkLocation, StagedBatch]:
    found = find_running(location, files)
    if found.query_id != query_id:
        raise ImportRefused(Refusal.OF_ANOTHER_QUERY, location=found.location)
    staged = _copied(query, found, target)
    try:
        _check_copy(found, target)
    except (IncompleteBatch, ValueError) as error:
        where, batch = found.location, found.batch
        raise ImportRefused(Refusal.BATCH_INCOMPLETE, location=where, batch=batch, what=str(error)) from error
    found.check_same_query()
    return found, staged


def _copied(query: str, found: SparkLocation, scratch: Path) -> StagedBatch:
    try:
        plan = _plan(query, found)
        # Small files first: Spark removes logs and changes of state sooner than the large files of snapshots.
        for file in sorted(found.selected, key=lambda file: file.size):
            target = scratch / file_name(file.path)
            found.files.get(f"{found.location}/{file.path}", target, _SHA256)
            if target.stat().st_size != file.size:
                raise in_use(found.location)
    except FileNotFoundError as error:
        raise in_use(found.location) from error
    return StagedBatch(QueryFiles(plan, scratch, None), found.batch, found.selected, scratch)


def _check_copy(found: SparkLocation, copy: Path) -> None:
    """Check that the copy is complete by itself: Spark may have replaced a file by another one of the same size."""
    listing = {str(path.relative_to(copy)): path.stat().st_size for path in copy.rglob("*") if path.is_file()}
    selected = select_batch(listing, found.batch, lambda path: (copy / path).read_bytes())
    if {file.path for file in selected} != {file.path for file in found.selected}:
        raise in_use(found.location)
    check_source_logs(listing, (copy / "offsets" / str(found.batch)).read_bytes())
    for file in selected:
        check_file(copy, file.path)


def import_savepoint(
    locations: Mapping[str, str],
    storage_of: Callable[[str], FileCheckpointStorage],
    directory: str,
    entry_class: str,
    clock: Clock,
    scratch: Path,
    *,
    stage: Stage = stage_location,
    job_name: str = "imported",
) -> CompletedCheckpoint:
    """Copy the newest committed batch of each location into one new savepoint below `directory`.

    Args:
        locations: the checkpoint location of each query, by the query's name; or one of UNNAMED.
        storage_of: the storage of a job, by the job's id. The savepoint gets an ID that no job has. It is the same for
        each import of the same queries, so they get batch numbers of one family (decision 132).
        entry_class: the program that the savepoint is for, "" if it is not known.
        scratch: an empty directory for temporary files. Its content is not needed afterwards.
        stage: copies a location: `stage_location`, or `stage_running` with its arguments.

    Raises:
        ImportRefused: a location cannot be used.
        OSError: storage fails.
    """
    started = clock.now_ms()
    imported = [
        stage(query, location, scratch / str(number)) for number, (query, location) in enumerate(locations.items())
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
            job_name=job_name,
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
