"""State that programs keep between batches.

A program imports what it needs from here: keyed state (`KeyedProcessFunction`, `process_keyed`) and operator state
(`with_operator_state` for foreachBatch functions, `OperatorStateReader` for Python sources). Spark's Python workers
load this package with the program, so it must stay small. To read the state of a snapshot: checkpointing.state_reading.
"""

from checkpointing.state.batch_function import NotInAStreamingQuery, with_operator_state
from checkpointing.state.keyed import (
    KeyedProcessFunction,
    ProcessContext,
    RuntimeContext,
    TimeMode,
    TimerService,
    process_keyed,
)
from checkpointing.state.keyed_states import (
    AggregateFunction,
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateTtlConfig,
    UpdateType,
    ValueState,
)
from checkpointing.state.operator_state import OperatorStateContext, OperatorStateStore, OperatorStateUnusable
from checkpointing.state.source import OperatorStateReader, SourceInputLost, SourceOffset
from checkpointing.state.values import NotJson

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "KeyedProcessFunction",
    "ListState",
    "MapState",
    "NotInAStreamingQuery",
    "NotJson",
    "OperatorStateContext",
    "OperatorStateReader",
    "OperatorStateStore",
    "OperatorStateUnusable",
    "ProcessContext",
    "ReducingState",
    "RuntimeContext",
    "SourceInputLost",
    "SourceOffset",
    "StateTtlConfig",
    "TimeMode",
    "TimerService",
    "UpdateType",
    "ValueState",
    "process_keyed",
    "with_operator_state",
]
