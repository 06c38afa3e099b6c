"""The states of one key, with Flink's names and contracts, each in a state variable of transformWithState.

Every call is a round trip to the JVM (about 0.1 ms), so a function that adds many rows at once uses `add_all`. A value
is checked here first, because Spark answers a bad one by ending the whole task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import reduce
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from checkpointing.spark_internals import type_verifier


class UpdateType(Enum):
    """The operations that restart a value's time to live."""

    ON_CREATE_AND_WRITE = "OnCreateAndWrite"
    ON_READ_AND_WRITE = "OnReadAndWrite"


@dataclass(frozen=True)
class StateTtlConfig:
    """How long a value exists, in processing time. An expired value is never returned, and a later batch removes it.

    Each element of a list and each entry of a map has a separate time to live. With ON_READ_AND_WRITE a read costs a
    write.
    """

    ttl: timedelta
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE

    def __post_init__(self) -> None:
        if not isinstance(self.ttl, timedelta) or self.milliseconds < 1:
            raise ValueError(f"ttl: a timedelta of at least a millisecond is expected, not {self.ttl!r}")

    @property
    def milliseconds(self) -> int:
        return self.ttl // timedelta(milliseconds=1)


def refreshes_on_read(ttl: StateTtlConfig | None) -> bool:
    return ttl is not None and ttl.update_type is UpdateType.ON_READ_AND_WRITE


class StoredType:
    """Converts a value of `data_type` to Spark's tuple and back.

    Raises TypeError if `data_type` is not a Spark type.
    """

    def __init__(self, data_type: Any, what: str) -> None:
        if not isinstance(data_type, DataType):
            raise TypeError(f"{what}: a Spark type such as LongType() is expected, not {data_type!r}")
        self._is_struct = isinstance(data_type, StructType)
        self.schema = data_type if isinstance(data_type, StructType) else StructType([StructField("value", data_type)])
        self._verify = type_verifier(data_type, what=what)

    def stored(self, value: Any) -> tuple[Any, ...]:
        """Return the value as a tuple. Raise a Spark error with the state's name if it is None or of another type."""
        if type(value).__module__ == "numpy":
            value = value.item()
        self._verify(value)
        if not self._is_struct:
            return (value,)
        return tuple(value[name] for name in self.schema.names) if isinstance(value, dict) else tuple(value)

    def loaded(self, stored: Any) -> Any:
        return stored if self._is_struct else stored[0]


class ValueState:
    """A state with one value."""

    def __init__(self, spark_state: Any, stored_type: StoredType, ttl: StateTtlConfig | None) -> None:
        self._spark_state = spark_state
        self._type = stored_type
        self._refreshes = refreshes_on_read(ttl)

    def value(self) -> Any:
        """Return the value, or None if there is none or it has expired."""
        stored = self._spark_state.get()
        if stored is None:
            return None
        if self._refreshes:
            self._spark_state.update(tuple(stored))
        return self._type.loaded(stored)

    def update(self, value: Any) -> None:
        """Set the value. None removes it."""
        if value is None:
            self.clear()
        else:
            self._spark_state.update(self._type.stored(value))

    def clear(self) -> None:
        self._spark_state.clear()


class ListState:
    """A state with values in the order in which they were added."""

    def __init__(self, spark_state: Any, stored_type: StoredType, ttl: StateTtlConfig | None) -> None:
        self._spark_state = spark_state
        self._type = stored_type
        self._refreshes = refreshes_on_read(ttl)

    def get(self) -> list[Any]:
        """Return all values that have not expired. The caller may change the list."""
        stored = list(self._spark_state.get())
        if stored and self._refreshes:
            self._spark_state.put([tuple(each) for each in stored])
        return [self._type.loaded(each) for each in stored]

    def add(self, value: Any) -> None:
        self._spark_state.appendValue(self._type.stored(value))

    def add_all(self, values: Iterable[Any]) -> None:
        if stored := [self._type.stored(value) for value in values]:
            self._spark_state.appendList(stored)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all values by `values`. No values remove the list."""
        if stored := [self._type.stored(value) for value in values]:
            self._spark_state.put(stored)
        else:
            self.clear()

    def clear(self) -> None:
        self._spark_state.clear()


class MapState:
    """A state with values by a second key within the key."""

    def __init__(
        self, spark_state: Any, key_type: StoredType, value_type: StoredType, ttl: StateTtlConfig | None
    ) -> None:
        self._spark_state = spark_state
        self._key = key_type
        self._value = value_type
        self._refreshes = refreshes_on_read(ttl)

    def get(self, key: Any) -> Any:
        """Return the value, or None if there is none or it has expired."""
        stored_key = self._key.stored(key)
        stored = self._spark_state.getValue(stored_key)
        if stored is None:
            return None
        if self._refreshes:
            self._spark_state.updateValue(stored_key, tuple(stored))
        return self._value.loaded(stored)

    def put(self, key: Any, value: Any) -> None:
        self._spark_state.updateValue(self._key.stored(key), self._value.stored(value))

    def put_all(self, entries: dict[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        """Remove an entry. A missing one is not an error."""
        self._spark_state.removeKey(self._key.stored(key))

    def contains(self, key: Any) -> bool:
        return bool(self._spark_state.containsKey(self._key.stored(key)))

    def items(self) -> list[tuple[Any, Any]]:
        """Return all entries that have not expired.

        They are read completely, so the map may be changed while they are used.
        """
        stored = list(self._spark_state.iterator())
        if self._refreshes:
            for key, value in stored:
                self._spark_state.updateValue(tuple(key), tuple(value))
        return [(self._key.loaded(key), self._value.loaded(value)) for key, value in stored]

    def keys(self) -> list[Any]:
        return [self._key.loaded(key) for key in self._spark_state.keys()]  # noqa: SIM118 - no dictionary

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return not self._spark_state.exists()

    def clear(self) -> None:
        self._spark_state.clear()


class ReducingState:
    """A state that reduces all added values to one."""

    def __init__(self, state: ValueState, reduce_function: Callable[[Any, Any], Any]) -> None:
        self._state = state
        self._reduce = reduce_function

    def get(self) -> Any:
        """Return the reduced value, or None if no value was added or it has expired."""
        return self._state.value()

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: Iterable[Any]) -> None:
        """Add all values with two round trips, independent of their number."""
        values = list(values)
        if not values:
            return
        so_far = self._state.value()
        self._state.update(reduce(self._reduce, values if so_far is None else [so_far, *values]))

    def clear(self) -> None:
        self._state.clear()


class AggregateFunction(ABC):
    """Computes the accumulator of an AggregatingState. The state stores the accumulator, so it has the state's type."""

    @abstractmethod
    def create_accumulator(self) -> Any: ...

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the new accumulator."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any: ...


class AggregatingState:
    """A state with an accumulator of all added values, and the result computed from it."""

    def __init__(self, state: ValueState, function: AggregateFunction) -> None:
        self._state = state
        self._function = function

    def get(self) -> Any:
        """Return the result, or None if no value was added or it has expired."""
        accumulator = self._state.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: Iterable[Any]) -> None:
        """Add all values with two round trips, independent of their number."""
        values = list(values)
        if not values:
            return
        accumulator = self._state.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        for value in values:
            accumulator = self._function.add(value, accumulator)
        self._state.update(accumulator)

    def clear(self) -> None:
        self._state.clear()
