"""The difference of an operator's state between two snapshots: the number of changed keys, and some of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.state_reading.contents import StateView, ViewKind
from checkpointing.state_reading.frames import KEY, MAP_KEY, VALUE
from checkpointing.state_reading.reading import JSON_OPTIONS, ViewReference, find_view, open_state
from checkpointing.state_reading.session import existing_or_new_session
from checkpointing.storage import read_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_SAMPLES = 1000


class Change(Enum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True)
class ChangedKey:
    """A key that changed. `before` is None for an added key, `after` for a removed one.

    If a key can have several values (a list, a join's side), both are lists. `map_key` is set only for a map state,
    whose entries count separately.
    """

    change: Change
    key: Any
    map_key: Any
    before: Any
    after: Any


@dataclass(frozen=True)
class StateDifference:
    """The difference. `sample` has at most the requested number of keys for each kind of change, in no order."""

    before_id: int
    after_id: int
    query: str
    operator: int
    view: StateView
    added: int
    removed: int
    changed: int
    unchanged: int
    sample: tuple[ChangedKey, ...]


def state_difference(
    before: str, after: str, reference: ViewReference, spark: SparkSession | None = None, *, sample: int = 10
) -> StateDifference:
    """Return the difference between two snapshots. A restarted time to live does not count.

    Raise ValueError if `sample` is not from 0 to 1,000, NoSuchState, SnapshotUnusable, or another OSError of storage.
    """
    if not isinstance(sample, int) or isinstance(sample, bool) or not 0 <= sample <= MOST_SAMPLES:
        raise ValueError(f"sample: a whole number from 0 to {MOST_SAMPLES} is expected, not {sample!r}")
    old, new = read_metadata(before), read_metadata(after)
    find_view(old, reference)
    operator, view = find_view(new, reference)
    with (
        existing_or_new_session(spark) as session,
        _by_key(old, reference, session) as old_rows,
        _by_key(new, reference, session) as new_rows,
    ):
        compared = _compared(old_rows, new_rows).persist()
        try:
            counts = {row["change"]: row["count"] for row in compared.groupBy("change").count().collect()}
            some = _sample(compared, sample)
        finally:
            compared.unpersist()
    return StateDifference(
        old.checkpoint_id,
        new.checkpoint_id,
        operator.query,
        operator.number,
        view,
        counts.get(Change.ADDED.value, 0),
        counts.get(Change.REMOVED.value, 0),
        counts.get(Change.CHANGED.value, 0),
        counts.get(None, 0),
        some,
    )


@contextmanager
def _by_key(checkpoint: CompletedCheckpoint, reference: ViewReference, spark: SparkSession) -> Iterator[DataFrame]:
    """Yield one row for each key: `id` and `values`, both as JSON, so that all types can be compared."""
    operator, view = find_view(checkpoint, reference)
    with open_state(checkpoint, operator, view, spark) as frame:
        identity = [KEY, MAP_KEY, VALUE] if view.kind is ViewKind.TIMERS else [KEY, MAP_KEY]
        rows = frame.select(
            F.to_json(F.struct(*identity), JSON_OPTIONS).alias("id"),
            F.to_json(F.struct(VALUE), JSON_OPTIONS).alias("values"),
        )
        yield _gathered(rows, view)


def _gathered(rows: DataFrame, view: StateView) -> DataFrame:
    """Return the values of a key as one: those of a list in their order, those of a join's side sorted."""
    match view.kind:
        case ViewKind.LIST:
            gathered = F.collect_list("values")
        case ViewKind.JOIN_SIDE:
            gathered = F.sort_array(F.collect_list("values"))
        case _:
            return rows
    return rows.groupBy("id").agg(gathered.cast("string").alias("values"))


def _compared(old: DataFrame, new: DataFrame) -> DataFrame:
    """Return both states joined by key. `change` is null for a key that is equal in both."""
    old, new = old.withColumnRenamed("values", "before"), new.withColumnRenamed("values", "after")
    change = (
        F.when(F.col("before").isNull(), Change.ADDED.value)
        .when(F.col("after").isNull(), Change.REMOVED.value)
        .when(F.col("before") != F.col("after"), Change.CHANGED.value)
    )
    return old.join(new, "id", "full_outer").withColumn("change", change)


def _sample(compared: DataFrame, size: int) -> tuple[ChangedKey, ...]:
    if size == 0:
        return ()
    some = [compared.where(F.col("change") == change.value).limit(size) for change in Change]
    return tuple(
        ChangedKey(
            Change(row["change"]), *_identity(json.loads(row["id"])), _value(row["before"]), _value(row["after"])
        )
        for row in reduce(lambda one, other: one.unionAll(other), some).collect()
    )


def _identity(fields: dict[str, Any]) -> tuple[Any, Any]:
    return fields[KEY], fields[MAP_KEY]


def _value(text: str | None) -> Any:
    if text is None:
        return None
    found = json.loads(text)
    return [each[VALUE] for each in found] if isinstance(found, list) else found[VALUE]
