"""Make a savepoint of Spark's own checkpoint locations: the state and offsets of queries that ran without Waymark.

A location is only read. Each of its files is copied, so that nothing that a job writes later reaches it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.coordinator.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.ids import stable_id
from checkpointing.messages import CheckpointKind, SubtaskMetrics, TriggerCheckpoint, Vertex, VertexKind
from checkpointing.spark.file_store import FileChecksums
from checkpointing.spark.layout import BatchFile, IncompleteBatch, Owner, committed_batches, select_batch
from checkpointing.spark.plan import QueryPlan, vertex_id
from checkpointing.spark.snapshot import DurableSubtask, PoolLedger, SnapshotWriter
from checkpointing.spark.staging import QueryFiles, StagedBatch, file_name
from checkpointing.storage.checkpoint_storage import FileCheckpointStorage
from checkpointing.storage.files import Files
from checkpointing.storage.locations import canonical
from checkpointing.storage.opening import files_for

_OFFSETS, _COMMITS = ("v1",), ("v1", "v2")
_SHA256 = "0" * 64


class ImportRefused(Exception):
    """The location cannot be brought along as it is; the text names it, what is wrong, and what to do."""


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
        storage_of: the storage of a job, by the job's id. The savepoint gets an id that is of no job. It is the same
            whenever the same queries are imported: so they get batch numbers of one family (decision 132).
        entry_class: the program that the savepoint is for.
        scratch: an empty directory for the files on their way. What is in it is of no use afterwards.

    Raises:
        ImportRefused: a location cannot be used.
        OSError: storage fails.
    """
    started = clock.now_ms()
    staged = [
        stage_location(query, location, scratch / str(number))
        for number, (query, location) in enumerate(locations.items())
    ]
    job_id = stable_id("import", *sorted(_spark_id(each) for each in staged))
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
            imported_from=tuple(canonical(location) for location in locations.values()),
        )
        storage.write_metadata(checkpoint)
    except BaseException:
        storage.discard_location(place)
        raise
    return checkpoint


def stage_location(query: str, location: str, scratch: Path) -> StagedBatch:
    """Copy what a restart after the location's newest committed batch needs into `scratch`; ImportRefused."""
    location = canonical(location)
    files = files_for(location)
    listing = _listing(files, location)
    batch = _newest_batch(listing, location)

    def read(path: str) -> bytes:
        return files.read(f"{location}/{path}")

    _check_formats(listing, batch, read, location)
    try:
        selected = [*select_batch(listing, batch, read), *_begun(listing, batch)]
        for file in selected:
            target = scratch / file_name(file.path)
            files.get(f"{location}/{file.path}", target, _SHA256)
            if target.stat().st_size != file.size:
                raise ImportRefused(_in_use(location))
    except IncompleteBatch as error:
        raise ImportRefused(f"{location}: batch {batch}, the newest one, is not complete: {error}") from error
    except FileNotFoundError as error:
        raise ImportRefused(_in_use(location)) from error
    if _listing(files, location) != listing:
        raise ImportRefused(_in_use(location))
    sources = len(read(f"offsets/{batch}").decode().splitlines()) - 2
    return StagedBatch(QueryFiles(_plan(query, sources, selected), scratch, None), batch, tuple(selected), scratch)


def _spark_id(staged: StagedBatch) -> str:
    return str(json.loads((staged.directory / "metadata").read_text())["id"])


def _in_use(location: str) -> str:
    return f"{location} changed while it was copied: a query still runs there. Stop it, and import the location again."


def _listing(files: Files, location: str) -> dict[str, int]:
    found: dict[str, int] = {}
    pending = [""]
    while pending:
        directory = pending.pop()
        place = f"{location}/{directory}".rstrip("/")
        sizes = files.sizes(place)
        found.update({f"{directory}{name}": size for name, size in sizes.items()})
        pending += [f"{directory}{name}/" for name in files.names(place) if name not in sizes]
    return found


def _newest_batch(listing: Mapping[str, int], location: str) -> int:
    if "metadata" not in listing:
        raise ImportRefused(f"{location} is no checkpoint location of Spark: it has no file 'metadata'.")
    commits = committed_batches(path.removeprefix("commits/") for path in listing if path.startswith("commits/"))
    if not commits:
        raise ImportRefused(f"{location} has no committed batch. Start the job without it: there is no state yet.")
    begun = committed_batches(path.removeprefix("offsets/") for path in listing if path.startswith("offsets/"))
    if begun and begun[-1] > commits[-1] + 1:
        raise ImportRefused(
            f"{location} has offsets of batch {begun[-1]}, but the newest commit is of batch {commits[-1]}: "
            "commits are missing, and Spark could not go on from there either."
        )
    return commits[-1]


def _begun(listing: Mapping[str, int], batch: int) -> Sequence[BatchFile]:
    """The input of a batch that was begun and not committed: it must run again with the same input."""
    path = f"offsets/{batch + 1}"
    return [BatchFile(path, listing[path], Owner(VertexKind.SOURCE, 0))] if path in listing else []


def _check_formats(listing: Mapping[str, int], batch: int, read: Callable[[str], bytes], location: str) -> None:
    logs = [(f"offsets/{batch}", _OFFSETS), (f"commits/{batch}", _COMMITS)]
    logs += [(file.path, _OFFSETS) for file in _begun(listing, batch)]
    for path, known in logs:
        version = read(path).decode(errors="replace").partition("\n")[0] if path in listing else known[0]
        if version not in known:
            raise ImportRefused(
                f"{location}/{path} has the format {version[:20]!r}, which is not known here; "
                f"{' and '.join(known)} are. It is damaged, or of another version of Spark."
            )
    try:
        json.loads(read("metadata"))["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise ImportRefused(f"{location}/metadata is damaged: it does not name the query's id.") from error


def _plan(query: str, sources: int, selected: Sequence[BatchFile]) -> QueryPlan:
    """The operators that the files tell of. Their names are not among it; a restore goes by their places."""
    partitions: dict[int, int] = {}
    for file in selected:
        if file.owner.kind is VertexKind.STATEFUL:
            partitions[file.owner.index] = max(partitions.get(file.owner.index, 1), file.owner.subtask + 1)
    places = [(VertexKind.SOURCE, index, 1) for index in range(max(sources, 1))]
    places += [(VertexKind.STATEFUL, index, number) for index, number in sorted(partitions.items())]
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
