"""Builds a new checkpointLocation from a snapshot, and returns the output of a file sink to the snapshot.

The location is never built in place: a directory that was ahead of the snapshot has newer state, which Spark would
silently use.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from checkpointing.checkpoint_location.checksums import is_rewritten, write_sums
from checkpointing.checkpoint_location.file_store import copy_verified
from checkpointing.checkpoint_location.layout import SINK_PREFIX
from checkpointing.checkpoint_location.schema_paths import relocate_schemas
from checkpointing.model.checkpoint import CompletedCheckpoint, OperatorState
from checkpointing.model.messages import StateFile, Vertex, VertexKind
from checkpointing.spark import file_sink
from checkpointing.spark.query_plan import vertex_id
from checkpointing.spark.sink_output import SinkLogEnd, SinkOutput, log_order, read_entries
from checkpointing.spark.spark_location import UNNAMED
from checkpointing.spark.staging import SINK_LOCATION
from checkpointing.state.batch_function import has_undeclared_function, name_of_holder
from checkpointing.storage import state_file_path


class RestoreRefused(Exception):
    """The snapshot does not fit the program, and a retry cannot help. The text names the state without an operator."""


class SnapshotDamaged(Exception):
    """A file of the snapshot cannot be read or has changed. Another snapshot or a retry may help."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot read from its manifest, with its current location."""

    checkpoint: CompletedCheckpoint

    def path_of(self, file: StateFile) -> Path:
        return Path(state_file_path(self.checkpoint, file))

    @property
    def queries(self) -> tuple[str, ...]:
        """Return the queries that had committed a batch. Others have no state and start as if they were new."""
        known = dict.fromkeys(operator.query for operator in self.checkpoint.operators)
        return tuple(query for query in known if query in self.checkpoint.batches)

    def partitions(self, query: str) -> dict[int, int]:
        """Return the partitions by stateful operator. A restored query keeps them, independent of the configuration."""
        found = {}
        for operator in self._operators(query):
            if operator.kind is VertexKind.STATEFUL:
                for file in _files(operator):
                    found[int(file.path.split("/")[1])] = operator.parallelism
        return found

    def files(self, query: str, vertex_ids: frozenset[str]) -> list[StateFile]:
        """Return the query's files. Include those of a stateful operator only if it is among `vertex_ids`."""
        return [
            file
            for operator in self._operators(query)
            if operator.kind is not VertexKind.STATEFUL or operator.vertex_id in vertex_ids
            for file in _files(operator)
        ]

    def query_id(self, query: str) -> str | None:
        """Return the ID that Spark gave to the query, or None if the snapshot does not contain the query."""
        files = self.files(query if query in self.queries else UNNAMED, frozenset())
        return next((read_query_id(self.path_of(file)) for file in files if file.path == "metadata"), None)

    def named(self, queries: Sequence[str]) -> Snapshot:
        """Assign state that was imported without a query name to the program's only query. Raise RestoreRefused."""
        if UNNAMED not in self.checkpoint.batches:
            return self
        if len(queries) != 1:
            raise RestoreRefused(
                f"The program has the queries {', '.join(map(repr, queries))}, but a checkpoint location was given "
                "without the name of its query. Write --from-checkpoint NAME=LOCATION, once for each query."
            )
        operators = tuple(_of_query(operator, queries[0]) for operator in self.checkpoint.operators)
        batches = {queries[0]: self.checkpoint.batches[UNNAMED]}
        return Snapshot(replace(self.checkpoint, operators=operators, batches=batches))

    def _operators(self, query: str) -> list[OperatorState]:
        return [operator for operator in self.checkpoint.operators if operator.query == query]


def read_query_id(path: Path) -> str | None:
    """Return the query ID in a location's file `metadata`, or None if it is damaged. The restore reports the damage."""
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _of_query(operator: OperatorState, query: str) -> OperatorState:
    """Return the operator as one of `query`. The name of an imported operator ends with its place (imported.py)."""
    place = int(operator.name.rpartition(" ")[2])
    return replace(operator, query=query, vertex_id=vertex_id(query, operator.kind, place))


def _files(operator: OperatorState) -> list[StateFile]:
    return [file for subtask in operator.subtasks for file in subtask.files]


def check_fits(snapshot: Snapshot, vertices: Sequence[Vertex], *, allow_non_restored_state: bool) -> None:
    """Raise RestoreRefused if state would be dropped without permission, or an operator would lack its state."""
    fitting = _fitting(snapshot, vertices)
    left_out = [
        f"{operator.name!r} of query {operator.query!r}{_operator_found_instead(operator, vertices)}"
        for operator in snapshot.checkpoint.operators
        if operator.vertex_id not in fitting and _files(operator)
    ]
    left_out += [
        f"operator state {name_of_holder(file.path)!r} of query {operator.query!r}"
        for operator in snapshot.checkpoint.operators
        for file in _files(operator)
        if has_undeclared_function(file.path)
    ]
    if left_out and not allow_non_restored_state:
        _check_imported_names(snapshot, vertices)
        raise RestoreRefused(
            f"Checkpoint {snapshot.checkpoint.checkpoint_id} has state that the program has no operator for: "
            f"{', '.join(left_out)}. Restore it with the program it was taken from, "
            "or allow non-restored state to leave this state behind."
        )
    _check_no_new_operator(snapshot, vertices, fitting)


def _check_imported_names(snapshot: Snapshot, vertices: Sequence[Vertex]) -> None:
    """Raise RestoreRefused if an import names a query that the program does not have."""
    given, there = snapshot.queries, tuple(dict.fromkeys(vertex.query for vertex in vertices))
    if snapshot.checkpoint.imported_from and not set(given) <= set(there):
        raise RestoreRefused(
            f"The checkpoint locations were given for the queries {', '.join(map(repr, given))}, but the program has "
            f"the queries {', '.join(map(repr, there))}. Write NAME=LOCATION with the names of the program's queries."
        )


def _check_no_new_operator(snapshot: Snapshot, vertices: Sequence[Vertex], fitting: frozenset[str]) -> None:
    """Raise RestoreRefused for a new stateful operator in an old query.

    Spark starts a stateful operator without state only in a query that has never run.
    """
    for vertex in vertices:
        if vertex.kind is VertexKind.STATEFUL and vertex.query in snapshot.queries and vertex.id not in fitting:
            raise RestoreRefused(
                f"Checkpoint {snapshot.checkpoint.checkpoint_id} has no state for {vertex.name!r} of query "
                f"{vertex.query!r}, and Spark cannot add a stateful operator to a query that has run. To start the "
                "query without state, give it another name and an empty output, and allow non-restored state. It "
                "then reads its input from the beginning, so its current output would get rows a second time."
            )


def _fitting(snapshot: Snapshot, vertices: Sequence[Vertex]) -> frozenset[str]:
    """Return the vertices that restore the state that the snapshot has for them.

    Spark finds a stateful operator's state by its place in the query, and another kind of operator does not fit there.
    Imported state does not have Waymark's names; Spark compares its own names when the query starts.
    """
    has_names = not snapshot.checkpoint.imported_from
    names = {vertex.id: vertex.name for vertex in vertices}
    return frozenset(
        operator.vertex_id
        for operator in snapshot.checkpoint.operators
        if operator.vertex_id in names
        and (not has_names or operator.kind is not VertexKind.STATEFUL or operator.name == names[operator.vertex_id])
    )


def _operator_found_instead(operator: OperatorState, vertices: Sequence[Vertex]) -> str:
    found = next((vertex.name for vertex in vertices if vertex.id == operator.vertex_id), None)
    return f" (the program has {found!r} in its place)" if found is not None else ""


def restore_query(snapshot: Snapshot, query: str, vertices: Sequence[Vertex], location: Path) -> int | None:
    """Fill `location`, which must not exist. Return the batch after which the query continues.

    Return None if the snapshot does not contain the query, which then starts without state. Raise SnapshotDamaged.
    """
    if query not in snapshot.queries:
        return None
    with _damaged(query):
        for file in snapshot.files(query, _fitting(snapshot, vertices)):
            if not file.path.startswith(SINK_PREFIX) and not has_undeclared_function(file.path):
                _link_or_copy(snapshot.path_of(file), location / file.path, file)
        relocate_schemas(location)
    return snapshot.checkpoint.batches[query]


def check_output(
    snapshot: Snapshot, query: str, output: SinkOutput, end: SinkLogEnd, job_id: str, other_jobs: Collection[str] = ()
) -> None:
    """Check `restore_output` in advance. Raise SinkDirectoryTaken or SnapshotDamaged.

    RestoreSpec explains `other_jobs`.
    """
    with _damaged(query):
        if _has_moved(snapshot, query, output):
            file_sink.check_not_foreign(output, job_id)
        else:
            file_sink.check_no_other_writer(output, snapshot.checkpoint.job_id, other_jobs)
        file_sink.check_numbers_are_new(output, end.first)


def restore_output(
    snapshot: Snapshot,
    query: str,
    output: SinkOutput,
    end: SinkLogEnd,
    job_id: str,
    *,
    keep_output: bool = False,
    writers_are_gone: bool = False,
) -> None:
    """Return the output of Spark's file sink to the snapshot. Other sinks do this themselves. Raise SnapshotDamaged.

    A query whose directory has changed since the snapshot starts there without rows.

    `keep_output` (at-least-once): rows beyond the snapshot stay visible to readers, although they will be written
    again. `writers_are_gone`: no process that wrote after the snapshot can still be writing.
    """
    with _damaged(query):
        if _has_moved(snapshot, query, output):
            output.mark(job_id)
            file_sink.put_back(output, (), end, keep_output=keep_output)
            return
        if snapshot.checkpoint.job_id != job_id:
            output.mark_continued(job_id)
        entries = _entries_of(snapshot, query, output)
        file_sink.put_back(output, entries, end, keep_output=keep_output)
        if writers_are_gone and not keep_output:
            file_sink.move_unfinished_aside(output, snapshot.checkpoint.trigger_timestamp)


def _has_moved(snapshot: Snapshot, query: str, output: SinkOutput) -> bool:
    location = _sink_files(snapshot, query).get(SINK_LOCATION)
    if location is not None:
        return not output.is_at(snapshot.path_of(location).read_text())
    return not snapshot.checkpoint.imported_from  # an imported location has no metadata log of Waymark


def _entries_of(snapshot: Snapshot, query: str, output: SinkOutput) -> list[str]:
    """Return the entries of the sink's log at the time of the snapshot."""
    files = _sink_files(snapshot, query)
    if files.pop(SINK_LOCATION, None) is None:
        return output.visible_as_of(snapshot.checkpoint.batches[query])
    with tempfile.TemporaryDirectory() as directory:
        copies = {path.rpartition("/")[2]: file for path, file in files.items()}
        for name, file in copies.items():
            copy_verified(snapshot.path_of(file), Path(directory, name), file.size, file.checksum)
        return read_entries(Path(directory, name) for name in sorted(copies, key=log_order))


def _sink_files(snapshot: Snapshot, query: str) -> dict[str, StateFile]:
    return {file.path: file for file in snapshot.files(query, frozenset()) if file.path.startswith(SINK_PREFIX)}


@contextlib.contextmanager
def _damaged(query: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise SnapshotDamaged(f"Query {query!r} cannot be restored: {error}") from error


def _link_or_copy(source: Path, target: Path, file: StateFile) -> None:
    """Link a file with a unique name (RocksDB's SST files, by far the most bytes), and copy all other files.

    A unique name is never written again, so the query cannot change the snapshot's bytes through the link.
    """
    if file.path.endswith(".sst"):
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.stat().st_size != file.size:
            raise ValueError(f"{source} is damaged: it has {source.stat().st_size} bytes instead of {file.size}")
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            target.unlink(missing_ok=True)
        else:
            return
    copy_verified(source, target, file.size, file.checksum)
    if not is_rewritten(file.path):
        write_sums(target)
