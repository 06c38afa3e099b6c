"""One view of an operator's state as a DataFrame with the same columns for each kind of state.

    partition   the state partition of the row
    key         struct: the grouping key
    map_key     the key within a map state, else null
    value       the value, or an element of a list state
    expires_at  epoch milliseconds if the state has a time to live, else null

A struct whose only field is called `value` is shown as that value, because keyed state stores plain values so.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from checkpointing.state_reading.contents import DEFAULT_STORE, StateView, ViewKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

KEY, MAP_KEY, VALUE, EXPIRES_AT, PARTITION = "key", "map_key", "value", "expires_at", "partition"
_TTL_FIELDS = ["value", "ttlExpirationMs"]


def state_frame(spark: SparkSession, location: Path, number: int, batch: int, view: StateView) -> DataFrame:
    """Return the state after `batch` in the checkpointLocation `location`."""
    reader = spark.read.format("statestore").option("operatorId", number).option("batchId", batch)
    for name, value in _options(view).items():
        reader = reader.option(name, value)
    return _uniform(reader.load(str(location)), view)


def _options(view: StateView) -> dict[str, Any]:
    match view.kind:
        case ViewKind.STORE:
            return {} if view.name == DEFAULT_STORE else {"storeName": view.name}
        case ViewKind.JOIN_SIDE:
            return {"joinSide": view.name}
        case ViewKind.TIMERS:
            return {"readRegisteredTimers": "true"}
        case _:
            return {"stateVarName": view.name}


def _uniform(raw: DataFrame, view: StateView) -> DataFrame:
    match view.kind:
        case ViewKind.LIST:
            stored, map_key = "list_element", F.lit(None).cast("string")
        case ViewKind.MAP:
            stored, map_key = "user_map_value", _plain(raw, "user_map_key")
        case ViewKind.TIMERS:
            stored, map_key = "expiration_timestamp_ms", F.lit(None).cast("string")
        case ViewKind.JOIN_SIDE:
            return _uniform(raw.withColumn("value", _as_declared(raw)), StateView(view.name, ViewKind.STORE))
        case _:
            stored, map_key = "value", F.lit(None).cast("string")
    value, expires_at = _value(raw, stored, has_ttl=view.has_ttl)
    return raw.select(
        F.col("partition_id").alias(PARTITION),
        F.col("key").alias(KEY),
        map_key.alias(MAP_KEY),
        value.alias(VALUE),
        expires_at.alias(EXPIRES_AT),
    )


def _as_declared(raw: DataFrame) -> Column:
    """Return the value with its declared fields.

    Rows of a join's side have one more, with which Spark's to_json fails.
    """
    return F.struct(*(F.col("value")[name].alias(name) for name in raw.schema["value"].dataType.fieldNames()))


def _value(raw: DataFrame, stored: str, *, has_ttl: bool) -> tuple[Column, Column]:
    nothing = F.lit(None).cast("long")
    if has_ttl and raw.schema[stored].dataType.fieldNames() == _TTL_FIELDS:
        inner = raw.select(F.col(f"{stored}.value").alias("inner"))
        return _unwrapped(F.col(f"{stored}.value"), inner, "inner"), F.col(f"{stored}.ttlExpirationMs")
    return _plain(raw, stored), nothing


def _plain(raw: DataFrame, column: str) -> Column:
    return _unwrapped(F.col(column), raw, column)


def _unwrapped(column: Column, frame: DataFrame, name: str) -> Column:
    data_type = frame.schema[name].dataType
    is_wrapper = isinstance(data_type, StructType) and data_type.names == ["value"]
    return column["value"] if is_wrapper else column
