"""Keyed state for programs: Flink's KeyedProcessFunction over Spark's transformWithState.

    class Count(KeyedProcessFunction):
        def open(self, context):
            self.total = context.value_state("total", LongType())

        def process(self, key, rows, context):
            total = (self.total.value() or 0) + sum(1 for _ in rows)
            self.total.update(total)
            yield key, total

    counts = process_keyed(words.groupBy("word"), Count(), "word string, total long")

Rows are Spark's Row (transformWithState), not pandas frames, which were slower when measured. The function needs the
RocksDB state store, which is the default of jobs.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from checkpointing.state.keyed_states import (
    AggregateFunction,
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateTtlConfig,
    StoredType,
    ValueState,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData


class TimeMode(Enum):
    """The clock for timers and times to live. With PROCESSING_TIME Spark runs batches also without input."""

    NONE = "None"
    PROCESSING_TIME = "ProcessingTime"
    EVENT_TIME = "EventTime"


class RuntimeContext:
    """Creates the states of a function in `open`. A name stands for one state, and a restore finds the state by it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.ttls: dict[str, StateTtlConfig | None] = {}

    def value_state(self, name: str, data_type: Any, ttl: StateTtlConfig | None = None) -> ValueState:
        stored = StoredType(data_type, self._new(name, ttl))
        return ValueState(self._handle.getValueState(name, stored.schema, _ms(ttl)), stored, ttl)

    def list_state(self, name: str, data_type: Any, ttl: StateTtlConfig | None = None) -> ListState:
        stored = StoredType(data_type, self._new(name, ttl))
        return ListState(self._handle.getListState(name, stored.schema, _ms(ttl)), stored, ttl)

    def map_state(self, name: str, key_type: Any, value_type: Any, ttl: StateTtlConfig | None = None) -> MapState:
        what = self._new(name, ttl)
        key, value = StoredType(key_type, f"{what}, key"), StoredType(value_type, what)
        return MapState(self._handle.getMapState(name, key.schema, value.schema, _ms(ttl)), key, value, ttl)

    def reducing_state(
        self, name: str, data_type: Any, reduce: Callable[[Any, Any], Any], ttl: StateTtlConfig | None = None
    ) -> ReducingState:
        """Return a reducing state. `reduce` makes one value of two; all have the type `data_type`."""
        return ReducingState(self.value_state(name, data_type, ttl), reduce)

    def aggregating_state(
        self, name: str, accumulator_type: Any, function: AggregateFunction, ttl: StateTtlConfig | None = None
    ) -> AggregatingState:
        return AggregatingState(self.value_state(name, accumulator_type, ttl), function)

    def _new(self, name: str, ttl: StateTtlConfig | None) -> str:
        """Check a new state and return its name for messages. Names that begin with $ are Spark's own."""
        if not isinstance(name, str) or not name or name.startswith("$"):
            raise ValueError(
                f"name: {name!r} is not allowed; a state's name is a non-empty string that does not begin with $"
            )
        if name in self.ttls:
            raise ValueError(f"two states of the function have the name {name!r}")
        if ttl is not None and not isinstance(ttl, StateTtlConfig):
            raise TypeError(f"state {name!r}: ttl is a StateTtlConfig, not {ttl!r}")
        self.ttls[name] = ttl
        return f"state {name!r}"


def _ms(ttl: StateTtlConfig | None) -> int | None:
    return None if ttl is None else ttl.milliseconds


class TimerService:
    """The times of the current batch, and the timers of the current key. All are in epoch milliseconds."""

    def __init__(self, handle: Any, values: Any, mode: TimeMode) -> None:
        self._handle = handle
        self._values = values
        self._mode = mode

    def current_processing_time(self) -> int:
        """Return when the batch began. It is the same for all its rows, also when the batch runs again."""
        return int(self._in(TimeMode.PROCESSING_TIME).getCurrentProcessingTimeInMs())

    def current_watermark(self) -> int:
        return int(self._in(TimeMode.EVENT_TIME).getCurrentWatermarkInMs())

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._in(TimeMode.PROCESSING_TIME)
        self._handle.registerTimer(timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._in(TimeMode.PROCESSING_TIME)
        self._handle.deleteTimer(timestamp)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._in(TimeMode.EVENT_TIME)
        self._handle.registerTimer(timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._in(TimeMode.EVENT_TIME)
        self._handle.deleteTimer(timestamp)

    def timers(self) -> list[int]:
        return list(self._handle.listTimers())

    def _in(self, mode: TimeMode) -> Any:
        if self._mode is not mode:
            raise ValueError(f"the function runs with time_mode {self._mode.name}; this call needs {mode.name}")
        return self._values


class ProcessContext:
    """The context of a function while it processes a key."""

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers

    def timer_service(self) -> TimerService:
        return self._timers


class KeyedProcessFunction(ABC):
    """A function with keyed state. A copy runs for every partition and batch, so data outside its states is lost."""

    @abstractmethod
    def open(self, context: RuntimeContext) -> None:
        """Create the states, always the same ones.

        Called before each batch, and in the driver when the query is made.
        """

    @abstractmethod
    def process(self, key: Any, rows: Iterator[Row], context: ProcessContext) -> Iterable[Any] | None:
        """Process all rows of a batch with this key: the grouping column's value, or a tuple for several columns.

        Return or yield rows of the output: Rows or dictionaries by column, or tuples in the columns' order.
        """

    def on_timer(self, key: Any, timestamp: int, context: ProcessContext) -> Iterable[Any] | None:
        """Handle a timer of this key that is due. The output is as for `process`."""
        return None

    def close(self) -> None:
        """Clean up after each batch."""
        return


def process_keyed(
    grouped: GroupedData,
    function: KeyedProcessFunction,
    output: StructType | str,
    *,
    time_mode: TimeMode | None = None,
    output_mode: str = "update",
    event_time_column: str = "",
) -> DataFrame:
    """Return the rows that `function` outputs. `output` is their schema, also as text (`"word string, total long"`).

    `time_mode` is NONE by default, and PROCESSING_TIME if a state has a time to live. `event_time_column` is a column
    of the output, for later operators. Raise ValueError or TypeError if the function's states are not possible.
    """
    schema = StructType.fromDDL(output) if isinstance(output, str) else output
    mode = _time_mode(function, time_mode)
    processor = _Processor(function, tuple(schema.names), mode)
    return grouped.transformWithState(processor, schema, output_mode, mode.value, eventTimeColumnName=event_time_column)


def _time_mode(function: KeyedProcessFunction, requested: TimeMode | None) -> TimeMode:
    limited = [name for name, ttl in states_of(function).items() if ttl is not None]
    if not limited:
        return requested or TimeMode.NONE
    if requested not in (None, TimeMode.PROCESSING_TIME):
        raise ValueError(
            f"time_mode: state {limited[0]!r} has a time to live, which {requested.name} does not support; use "
            "PROCESSING_TIME"
        )
    return TimeMode.PROCESSING_TIME


def states_of(function: KeyedProcessFunction) -> Mapping[str, StateTtlConfig | None]:
    """Return the names of the function's states, with their times to live."""
    context = RuntimeContext(_NoStates())
    copy.copy(function).open(context)
    return context.ttls


class _NoStates:
    """Replaces Spark's handle, to find out which states a function creates."""

    def getValueState(self, *_: Any) -> None: ...  # noqa: N802

    def getListState(self, *_: Any) -> None: ...  # noqa: N802

    def getMapState(self, *_: Any) -> None: ...  # noqa: N802


class _Processor(StatefulProcessor):  # type: ignore[misc]  # PySpark is not typed here
    """Spark calls this class with keyword arguments, so it defines the arguments' names."""

    def __init__(self, function: KeyedProcessFunction, columns: tuple[str, ...], mode: TimeMode) -> None:
        self._function = function
        self._columns = columns
        self._mode = mode
        self._handle: Any = None

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._function.open(RuntimeContext(handle))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        return self._rows(self._function.process(_single(key), rows, self._context(timerValues)))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        timestamp = expiredTimerInfo.getExpiryTimeInMs()
        return self._rows(self._function.on_timer(_single(key), timestamp, self._context(timerValues)))

    def close(self) -> None:
        self._function.close()

    def _context(self, times: Any) -> ProcessContext:
        return ProcessContext(TimerService(self._handle, times, self._mode))

    def _rows(self, results: Iterable[Any] | None) -> Iterator[Row]:
        for result in results or ():
            yield Row(**self._by_column(result))

    def _by_column(self, result: Any) -> dict[str, Any]:
        """Return the row by column.

        Refuse a row that lacks a column, because Spark would silently fill it with null.
        """
        if isinstance(result, Row) and hasattr(result, "__fields__"):
            result = dict(zip(result.__fields__, result, strict=True))
        if isinstance(result, dict) and len(result) == len(self._columns) and all(c in result for c in self._columns):
            return result
        if isinstance(result, tuple) and len(result) == len(self._columns):
            return dict(zip(self._columns, result, strict=True))
        raise TypeError(
            f"{type(self._function).__name__} returned {result!r}; a row must have the columns "
            f"{', '.join(self._columns)}"
        )


def _single(key: Any) -> Any:
    return key[0] if len(key) == 1 else key
