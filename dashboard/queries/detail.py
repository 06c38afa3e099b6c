"""The subtasks of one operator in a checkpoint, with minimum, average, maximum and percentiles of each column.

The percentiles are computed here, because Flink's REST API returns "NaN" for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.utils.translation import gettext_noop as _

from dashboard.percentiles import FRACTIONS, percentile
from monitoring.models import Checkpoint, CheckpointStatus, OperatorCheckpoint, RunException


@dataclass(frozen=True)
class Column:
    """One measured value of a subtask. `field` is an array of OperatorCheckpoint, `unit` is "ms" or "bytes"."""

    field: str
    label: str
    unit: str


COLUMNS = (
    Column("subtask_end_to_end", _("End to end"), "ms"),
    Column("subtask_checkpointed_size", _("Checkpointed"), "bytes"),
    Column("subtask_state_size", _("Full size"), "bytes"),
    Column("subtask_sync", _("Sync"), "ms"),
    Column("subtask_async", _("Async"), "ms"),
    Column("subtask_alignment", _("Alignment"), "ms"),
    Column("subtask_start_delay", _("Start delay"), "ms"),
    Column("subtask_processed", _("In-flight processed"), "bytes"),
    Column("subtask_persisted", _("In-flight persisted"), "bytes"),
)


_REPORT_DELAY = timedelta(seconds=5)
SHOWN_FRACTIONS = tuple((name, fraction) for name, fraction in FRACTIONS.items() if name != "p99.9")


@dataclass(frozen=True)
class Cell:
    value: float | None
    unit: str
    is_maximum: bool = False  # the largest value of its column, if the values differ


@dataclass(frozen=True)
class SubtaskRow:
    index: int
    acknowledged_at: datetime | None
    cells: list[Cell]
    unaligned: bool | None
    aborted: bool

    def value(self, field: str) -> Any:
        """Return the row's value of a column of COLUMNS, its index or its time of acknowledgement."""
        if field in ("index", "acknowledged_at"):
            return getattr(self, field)
        return self.cells[[column.field for column in COLUMNS].index(field)].value


@dataclass(frozen=True)
class SummaryRow:
    name: str
    cells: list[Cell]


@dataclass(frozen=True)
class Subtasks:
    """The table of subtasks. `rows` has every subtask, sorted by index."""

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
    return Subtasks(COLUMNS, summary_of(values), rows)


def summary_of(values: Mapping[str, Sequence[int | None]]) -> list[SummaryRow]:
    """Return minimum, average, maximum and percentiles of each column, or None if no subtask has a value."""
    known = {name: sorted(v for v in column if v is not None) for name, column in values.items()}
    measures: list[tuple[str, Callable[[list[int]], float]]] = [
        ("Minimum", min),
        ("Average", lambda column: sum(column) // len(column)),
        ("Maximum", max),
    ]
    if max(map(len, known.values()), default=0) > 1:
        measures += [(name, partial(percentile, fraction=fraction)) for name, fraction in SHOWN_FRACTIONS]
    return [
        SummaryRow(name, [Cell(measure(known[c.field]) if known[c.field] else None, c.unit) for c in COLUMNS])
        for name, measure in measures
    ]


def _peak(column: Sequence[int | None]) -> int | None:
    """Return the largest value of a column, or None if all its values are equal."""
    known = [v for v in column if v is not None]
    return max(known) if len(set(known)) > 1 else None


def _cell(column: Column, value: int | None, peak: int | None) -> Cell:
    return Cell(value, column.unit, is_maximum=value is not None and value == peak)


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def exceptions_around(checkpoint: Checkpoint, most: int = 3) -> list[RunException]:
    """Return the newest exceptions of the run that occurred during a failed checkpoint.

    If a task failed during the checkpoint, the checkpoint's message says only that the coordinator was suspended.
    """
    if checkpoint.status != CheckpointStatus.FAILED or checkpoint.failed_at is None:
        return []
    thrown = (checkpoint.triggered_at, checkpoint.failed_at + _REPORT_DELAY)
    return list(RunException.objects.filter(run=checkpoint.run_id, at__range=thrown).order_by("-at")[:most])
