"""Reads keyed state from a snapshot: keys and values, with a filter and a limit, and the number of rows by partition.

Every call names one view of one operator (see `contents`) and uses only that operator's files. It returns values that
JSON can represent: a struct is an object, a timestamp ISO 8601 text in UTC, binary base64. Spark runs in the given
session, or in a small one that starts after everything else was checked.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.state_reading.contents import KeyedOperator, StatePartition, StateView, keyed_operators
from checkpointing.state_reading.frames import EXPIRES_AT, KEY, MAP_KEY, PARTITION, VALUE, state_frame
from checkpointing.state_reading.materialise import materialised
from checkpointing.state_reading.session import existing_or_new_session
from checkpointing.storage import SnapshotUnusable, read_metadata

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_ROWS = 10_000
# These options make the text the same in every session: null fields included, times in UTC.
JSON_OPTIONS = {"ignoreNullFields": "false", "timeZone": "UTC"}


class NoSuchState(ValueError):
    """The snapshot has no such query, operator, view, key field or column. The text names the existing ones."""


class StateUnreadable(SnapshotUnusable):
    """The files exist, but Spark cannot read state from them."""


@dataclass(frozen=True)
class ViewReference:
    """Identifies a state. A field may be None if the snapshot has only one of its kind."""

    query: str | None = None
    operator: int | None = None
    view: str | None = None


@dataclass(frozen=True)
class StateFilter:
    """A filter, of which all conditions must hold.

    `key` compares fields of the key as text, None with null. `contains` searches a text in the fields of the key and in
    the map key. `where` is an SQL condition over partition, key, map_key, value and expires_at; accept it only from a
    trusted person.
    """

    key: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    contains: str | None = None
    partition: int | None = None
    where: str | None = None


@dataclass(frozen=True)
class StateRow:
    """One row.

    `map_key` is set only for a map state. `expires_at` is in epoch milliseconds, None without a time to live.
    """

    partition: int
    key: Any
    map_key: Any
    value: Any
    expires_at: int | None


@dataclass(frozen=True)
class StateRows:
    """Rows in no order. `is_truncated`: there are more rows than requested."""

    checkpoint_id: int
    batch: int
    operator: KeyedOperator
    view: StateView
    rows: tuple[StateRow, ...]
    is_truncated: bool


@dataclass(frozen=True)
class StateSizes:
    """How an operator's state is distributed over its partitions.

    A skew is the size of the largest partition divided by the mean: 1.0 for equal sizes, None without state.
    """

    operator: KeyedOperator
    view: StateView | None
    partitions: tuple[StatePartition, ...]

    @property
    def skew_of_bytes(self) -> float | None:
        return _skew([partition.bytes for partition in self.partitions])

    @property
    def skew_of_rows(self) -> float | None:
        return _skew([partition.rows or 0 for partition in self.partitions])


def _skew(sizes: Sequence[int]) -> float | None:
    return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else None


def read_state(
    location: str,
    reference: ViewReference,
    spark: SparkSession | None = None,
    *,
    only: StateFilter | None = None,
    limit: int = 100,
) -> StateRows:
    """Return at most `limit` (1 to 10,000) rows that pass the filter.

    Raise ValueError for a limit or condition that is not allowed, NoSuchState, SnapshotUnusable, or another OSError of
    storage.
    """
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST_ROWS:
        raise ValueError(f"limit: a whole number from 1 to {MOST_ROWS} is expected, not {limit!r}")
    checkpoint = read_metadata(location)
    operator, view = find_view(checkpoint, reference)
    with open_state(checkpoint, operator, view, spark) as frame:
        kept = _filtered(frame, only or StateFilter())
        columns = F.struct(PARTITION, KEY, MAP_KEY, VALUE, EXPIRES_AT)
        found = kept.select(F.to_json(columns, JSON_OPTIONS).alias("row")).limit(limit + 1).collect()
    rows = tuple(StateRow(**json.loads(row["row"])) for row in found[:limit])
    batch = checkpoint.batches[operator.query]
    return StateRows(checkpoint.checkpoint_id, batch, operator, view, rows, len(found) > limit)


def state_sizes(
    location: str, reference: ViewReference, spark: SparkSession | None = None, *, rows: bool = False
) -> StateSizes:
    """Return bytes and files by partition, without Spark.

    With `rows`, count the view's rows. Errors as `read_state`.
    """
    checkpoint = read_metadata(location)
    if not rows:
        operator = find_operator(checkpoint, reference)
        return StateSizes(operator, None, operator.partitions)
    operator, view = find_view(checkpoint, reference)
    with open_state(checkpoint, operator, view, spark) as frame:
        counts = Counter({row[PARTITION]: row["count"] for row in frame.groupBy(PARTITION).count().collect()})
    counted = tuple(dataclasses.replace(each, rows=counts[each.index]) for each in operator.partitions)
    return StateSizes(operator, view, counted)


# --- selection of the state ------------------------------------------------------------------------------------------


def find_view(checkpoint: CompletedCheckpoint, reference: ViewReference) -> tuple[KeyedOperator, StateView]:
    operator = find_operator(checkpoint, reference)
    names = [view.name for view in operator.views]
    if reference.view is None and len(names) == 1:
        return operator, operator.views[0]
    if reference.view not in names:
        requested = "choose one" if reference.view is None else f"there is no {reference.view!r}"
        raise NoSuchState(
            f"view: {requested}; operator {operator.number} of query {operator.query!r} has {_list(names)}"
        )
    return operator, operator.views[names.index(reference.view)]


def find_operator(checkpoint: CompletedCheckpoint, reference: ViewReference) -> KeyedOperator:
    there = keyed_operators(checkpoint)
    if not there:
        raise NoSuchState(f"{checkpoint.location} holds no keyed state")
    queries = list(dict.fromkeys(operator.query for operator in there))
    query = _one("query", reference.query, queries)
    numbers = [operator.number for operator in there if operator.query == query]
    number = _one(f"operator of query {query!r}", reference.operator, numbers)
    return next(operator for operator in there if (operator.query, operator.number) == (query, number))


def _one(what: str, requested: Any, there: Sequence[Any]) -> Any:
    if requested is None and len(there) == 1:
        return there[0]
    if requested not in there:
        problem = "choose one" if requested is None else f"there is no {requested!r}"
        raise NoSuchState(f"{what}: {problem}; those with keyed state are {_list(there)}")
    return requested


def _list(names: Sequence[Any]) -> str:
    return ", ".join(str(name) for name in names)


# --- reading ---------------------------------------------------------------------------------------------------------


@contextmanager
def open_state(
    checkpoint: CompletedCheckpoint, operator: KeyedOperator, view: StateView, spark: SparkSession | None
) -> Iterator[DataFrame]:
    """Yield the view as a DataFrame. Turn Spark's errors in the block into StateUnreadable."""
    with materialised(checkpoint, operator.query, operator.number) as place, existing_or_new_session(spark) as session:
        try:
            yield state_frame(session, place, operator.number, checkpoint.batches[operator.query], view)
        except (PySparkException, Py4JError) as error:
            what = f"view {view.name!r} of operator {operator.number} of query {operator.query!r}"
            raise StateUnreadable(checkpoint.location, f"{what} cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """Return the first line of the error's text, without the line that py4j adds before it."""
    lines = [line.strip(": ") for line in str(error).splitlines() if not line.startswith("An error occurred while")]
    return next(filter(None, lines), type(error).__name__)[:300]


def _filtered(frame: DataFrame, only: StateFilter) -> DataFrame:
    for name, text in only.key.items():
        frame = frame.where(_equals(frame, name, text))
    if only.contains is not None:
        frame = frame.where(_key_text(frame).contains(only.contains))
    if only.partition is not None:
        frame = frame.where(F.col(PARTITION) == only.partition)
    return frame if only.where is None else _where(frame, only.where)


def _key_text(frame: DataFrame) -> Column:
    fields = [F.col(KEY)[name] for name in _key_fields(frame)]
    return F.concat_ws("\n", *(field.cast("string") for field in [*fields, F.col(MAP_KEY)]))


def _key_fields(frame: DataFrame) -> list[str]:
    key_type = frame.schema[KEY].dataType
    return list(key_type.names) if isinstance(key_type, StructType) else []


def _equals(frame: DataFrame, name: str, text: str | None) -> Column:
    names = _key_fields(frame)
    if name not in names:
        raise NoSuchState(f"key: there is no field {name!r}; it has {_list(names)}")
    column = F.col(KEY)[name]
    return column.isNull() if text is None else column.cast("string") == text


def _where(frame: DataFrame, condition: str) -> DataFrame:
    try:
        return frame.where(F.expr(condition))
    except PySparkException as error:
        raise ValueError(f"where: {condition!r} is not a valid condition: {_first_line(error)}") from error
