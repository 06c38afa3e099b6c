"""The state in a snapshot, from its manifest and a few small files: without Spark, so fast enough for a page.

Keyed state belongs to a stateful operator and has partitions. It has these views:

    default              the one store of an aggregation, a deduplication, …
    left, right          the rows that a join keeps of each side; its four stores can be seen, too
    a variable's name    transformWithState: a value, list or map state
    timers               transformWithState's timers

Operator state belongs to a foreachBatch function or a Python source (state/operator_state.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from checkpointing.model.checkpoint import CompletedCheckpoint, OperatorState
from checkpointing.model.messages import StateFile, VertexKind
from checkpointing.state.operator_state import (
    OperatorStateStore,
    OperatorStateUnusable,
    decode,
    to_plain,
)
from checkpointing.storage import SnapshotIncomplete, SnapshotUnusable, files_for, read_metadata, state_file_path

TIMERS = "timers"
DEFAULT_STORE = "default"


class ViewKind(Enum):
    STORE = "store"
    JOIN_SIDE = "join side"
    VALUE = "value"
    LIST = "list"
    MAP = "map"
    TIMERS = "timers"


@dataclass(frozen=True)
class StateView:
    """One view of an operator's state."""

    name: str
    kind: ViewKind
    has_ttl: bool = False


@dataclass(frozen=True)
class StatePartition:
    """A subtask's share of the snapshot. `rows` is None if unknown."""

    index: int
    files: int
    bytes: int
    rows: int | None = None


@dataclass(frozen=True)
class KeyedOperator:
    """A stateful operator. `number` is its place among the query's stateful operators, as Spark counts them."""

    query: str
    number: int
    vertex_id: str
    name: str
    views: tuple[StateView, ...]
    partitions: tuple[StatePartition, ...]

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.partitions)


@dataclass(frozen=True)
class OperatorStateEntry:
    """One operator state. `elements`, by subtask, are JSON values, or pairs of key and value for a broadcast state."""

    name: str
    mode: str
    elements: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class OperatorStateHolder:
    """The owner of operator state: a foreachBatch function by its name, or a source, such as `source 0`."""

    query: str
    holder: str
    parallelism: int
    states: tuple[OperatorStateEntry, ...]


@dataclass(frozen=True)
class SnapshotContents:
    """The contents of a snapshot. `batches` has the last batch of each query. Times are in epoch milliseconds."""

    location: str
    checkpoint_id: int
    kind: str
    job_id: str
    job_name: str
    completion_timestamp: int
    batches: dict[str, int]
    keyed: tuple[KeyedOperator, ...]
    operator_state: tuple[OperatorStateHolder, ...]


def contents_of(location: str) -> SnapshotContents:
    """Return the contents of the snapshot at `location`, which may be its `_metadata`.

    Raise SnapshotUnusable, or another OSError of storage.
    """
    checkpoint = read_metadata(location)
    return SnapshotContents(
        checkpoint.location,
        checkpoint.checkpoint_id,
        checkpoint.properties.kind.value,
        checkpoint.job_id,
        checkpoint.job_name,
        checkpoint.completion_timestamp,
        dict(checkpoint.batches),
        keyed_operators(checkpoint),
        tuple(_operator_state(checkpoint)),
    )


# --- keyed state -----------------------------------------------------------------------------------------------------


def keyed_operators(checkpoint: CompletedCheckpoint) -> tuple[KeyedOperator, ...]:
    """Return the stateful operators. Raise SnapshotUnusable if the description of one cannot be read."""
    return tuple(
        KeyedOperator(
            operator.query,
            operator_number(operator),
            operator.vertex_id,
            operator.name,
            _views(_description(checkpoint, operator)),
            tuple(_partitions(operator)),
        )
        for operator in checkpoint.operators
        if operator.kind is VertexKind.STATEFUL and files_of(operator)
    )


def files_of(operator: OperatorState) -> list[StateFile]:
    return [file for subtask in operator.subtasks for file in subtask.files]


def operator_number(operator: OperatorState) -> int:
    """Return the operator's number. Every file of a stateful operator is at `state/<number>/…`."""
    return int(files_of(operator)[0].path.split("/")[1])


def _partitions(operator: OperatorState) -> Iterator[StatePartition]:
    """Yield the sizes of the partitions' files. Files that describe the whole operator belong to no partition."""
    for subtask in operator.subtasks:
        stores = [file for file in subtask.files if file.path.split("/")[2].isdigit()]
        yield StatePartition(subtask.index, len(stores), sum(file.size for file in stores))


def _description(checkpoint: CompletedCheckpoint, operator: OperatorState) -> dict[str, Any]:
    """Return Spark's operator metadata: `_metadata/metadata`, or the newest `_metadata/v2/<batch>`."""
    found = {_place(file): file for file in files_of(operator) if file.path.split("/")[2] == "_metadata"}
    if not found:
        raise SnapshotUnusable(
            checkpoint.location,
            f"the files that describe the state of operator {operator.name!r} are missing. Spark writes them since 4.0",
        )
    file = found[max(found)]
    try:
        description: dict[str, Any] = json.loads(read_file(checkpoint, file).decode().partition("\n")[2])
    except ValueError as error:
        raise SnapshotIncomplete(checkpoint.location, file.location, f"cannot be read: {error}") from error
    return description


def _place(file: StateFile) -> int:
    """Return the sort key of a metadata file: its batch, or -1 without one."""
    name = file.path.rpartition("/")[2]
    return int(name) if name.isdigit() else -1


def read_file(checkpoint: CompletedCheckpoint, file: StateFile) -> bytes:
    path = state_file_path(checkpoint, file)
    try:
        content = files_for(path).read(path)
    except FileNotFoundError as error:
        raise SnapshotIncomplete(checkpoint.location, file.location, "is missing") from error
    if len(content) != file.size:
        problem = f"has {len(content)} bytes instead of {file.size}"
        raise SnapshotIncomplete(checkpoint.location, file.location, problem)
    return content


_VARIABLE_KINDS = {"ValueState": ViewKind.VALUE, "ListState": ViewKind.LIST, "MapState": ViewKind.MAP}


def _views(description: dict[str, Any]) -> tuple[StateView, ...]:
    stores = [store["storeName"] for store in description.get("stateStoreInfo", ())]
    properties = json.loads(description.get("operatorPropertiesJson") or "{}")
    variables = properties.get("stateVariables", ())
    if variables:
        return tuple(sorted(map(_variable, variables), key=lambda view: (view.kind is ViewKind.TIMERS, view.name)))
    if description.get("operatorInfo", {}).get("operatorName") == "symmetricHashJoin":
        sides = [StateView(side, ViewKind.JOIN_SIDE) for side in ("left", "right")]
        return (*sides, *(StateView(store, ViewKind.STORE) for store in stores))
    return tuple(StateView(store, ViewKind.STORE) for store in stores)


def _variable(variable: dict[str, Any]) -> StateView:
    if variable["stateVariableType"] == "TimerState":
        return StateView(TIMERS, ViewKind.TIMERS)
    return StateView(
        variable["stateName"], _VARIABLE_KINDS[variable["stateVariableType"]], bool(variable.get("ttlEnabled"))
    )


# --- operator state --------------------------------------------------------------------------------------------------


def _operator_state(checkpoint: CompletedCheckpoint) -> Iterator[OperatorStateHolder]:
    for operator in checkpoint.operators:
        for file in files_of(operator):
            kind, _, rest = file.path.partition("/")
            if kind == "operators":
                stores = _decoded(checkpoint, file)
                yield _holder(operator.query, rest.partition("/")[0], stores)
            elif file.path == f"offsets/{checkpoint.batches.get(operator.query)}":
                yield from _sources(operator.query, read_file(checkpoint, file))


def _decoded(checkpoint: CompletedCheckpoint, file: StateFile) -> tuple[OperatorStateStore, ...]:
    try:
        return decode(read_file(checkpoint, file), file.path)
    except OperatorStateUnusable as error:
        raise SnapshotUnusable(checkpoint.location, str(error)) from error


def _sources(query: str, offsets: bytes) -> Iterator[OperatorStateHolder]:
    """Yield the operator state of sources. Spark writes a version, its own settings, then one line for each source."""
    from checkpointing.state.source import SourceOffset  # imported late, because the module needs pyspark

    for index, line in enumerate(offsets.decode().splitlines()[2:]):
        try:
            offset = SourceOffset.from_plain(json.loads(line))
        except (ValueError, TypeError, OperatorStateUnusable):
            continue  # a source without operator state
        yield _holder(query, f"source {index}", offset.state.stores)


def _holder(query: str, holder: str, stores: Sequence[OperatorStateStore]) -> OperatorStateHolder:
    subtasks = to_plain(stores)["subtasks"]
    modes = {name: plain["mode"] for subtask in subtasks for name, plain in subtask.items()}
    states = tuple(
        OperatorStateEntry(name, mode, tuple(tuple(s[name]["elements"]) if name in s else () for s in subtasks))
        for name, mode in modes.items()
    )
    return OperatorStateHolder(query, holder, len(subtasks), states)
