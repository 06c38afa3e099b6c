"""One checkpoint's operators and one operator's subtasks, with minimum, average and maximum as Flink shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from monitoring.models import OperatorCheckpoint


@dataclass(frozen=True)
class Column:
    """A figure of a subtask. `field` is OperatorCheckpoint's array, `unit` is "ms" or "bytes"."""

    field: str
    label: str
    unit: str


COLUMNS = (
    Column("subtask_end_to_end", "End to end", "ms"),
    Column("subtask_checkpointed_size", "Checkpointed", "bytes"),
    Column("subtask_state_size", "Full size", "bytes"),
    Column("subtask_sync", "Sync", "ms"),
    Column("subtask_async", "Async", "ms"),
    Column("subtask_alignment", "Alignment", "ms"),
    Column("subtask_start_delay", "Start delay", "ms"),
    Column("subtask_processed", "In-flight processed", "bytes"),
    Column("subtask_persisted", "In-flight persisted", "bytes"),
)


@dataclass(frozen=True)
class Cell:
    value: int | None
    unit: str
    is_maximum: bool = False  # the slowest or largest of its column, where that tells something


@dataclass(frozen=True)
class SubtaskRow:
    index: int
    acknowledged_at: datetime | None
    cells: list[Cell]
    unaligned: bool | None
    aborted: bool


@dataclass(frozen=True)
class SummaryRow:
    name: str
    cells: list[Cell]


@dataclass(frozen=True)
class Subtasks:
    columns: Sequence[Column]
    summary: list[SummaryRow]
    rows: list[SubtaskRow]


def read_subtasks(operator: OperatorCheckpoint) -> Subtasks:
    values = {column.field: list(getattr(operator, column.field)) for column in COLUMNS}
    count = max(operator.num_subtasks, len(operator.subtask_ack_at))
    peaks = {name: _peak(column) for name, column in values.items()}
    rows = [
        SubtaskRow(
            index=index,
            acknowledged_at=_at(operator.subtask_ack_at, index),
            cells=[_cell(column, _at(values[column.field], index), peaks[column.field]) for column in COLUMNS],
            unaligned=_at(operator.subtask_unaligned, index),
            aborted=bool(_at(operator.subtask_aborted, index)),
        )
        for index in range(count)
    ]
    return Subtasks(COLUMNS, _summary(values), rows)


def _summary(values: dict[str, list[int | None]]) -> list[SummaryRow]:
    known = {name: [v for v in column if v is not None] for name, column in values.items()}
    measures = (("Minimum", min), ("Average", lambda column: sum(column) // len(column)), ("Maximum", max))
    return [
        SummaryRow(name, [Cell(measure(known[c.field]) if known[c.field] else None, c.unit) for c in COLUMNS])
        for name, measure in measures
    ]


def _peak(column: Sequence[int | None]) -> int | None:
    """The largest value, when there are several and they differ."""
    known = [v for v in column if v is not None]
    return max(known) if len(set(known)) > 1 else None


def _cell(column: Column, value: int | None, peak: int | None) -> Cell:
    return Cell(value, column.unit, is_maximum=value is not None and value == peak)


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None
