"""Convert the engine's answers to rows for `monitoring.bulk`: a list of values for each column name. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import repeat
from operator import attrgetter
from typing import Any

from monitoring.engine.answers import CheckpointStats, OperatorSubtasks, TaskStats
from monitoring.models import Run
from monitoring.polling.observation import CheckpointReading

SLOWEST = {
    "alignment_max": "alignment_duration",
    "start_delay_max": "start_delay",
    "sync_max": "sync_duration",
    "async_max": "async_duration",
}
_TOTALS = (
    *("latest_ack_at", "end_to_end_duration", "checkpointed_size", "state_size", "processed_data", "persisted_data"),
    *("num_subtasks", "num_acknowledged_subtasks"),
)
# Column of OperatorCheckpoint <- field of SubtaskStats
_PER_SUBTASK = {
    "subtask_ack_at": "ack_at",
    "subtask_end_to_end": "end_to_end_duration",
    "subtask_checkpointed_size": "checkpointed_size",
    "subtask_state_size": "state_size",
    "subtask_sync": "sync_duration",
    "subtask_async": "async_duration",
    "subtask_alignment": "alignment_duration",
    "subtask_start_delay": "start_delay",
    "subtask_processed": "processed_data",
    "subtask_persisted": "persisted_data",
    "subtask_unaligned": "unaligned",
    "subtask_aborted": "aborted",
}
CHECKPOINT_COLUMNS = (
    *("status", "is_savepoint", "checkpoint_type", "savepoint_format", "failed_at", "failure_message"),
    *("external_path", "discarded", "final"),
    *_TOTALS,
    *SLOWEST,
)
OPERATOR_COLUMNS = ("name", "position", *_TOTALS, *_PER_SUBTASK)


def checkpoint_columns(
    listed: CheckpointStats | None, reading: CheckpointReading | None, *, settled_before: datetime
) -> dict[str, Any] | None:
    """Return the columns from the history's entry and the details, or None if neither has the checkpoint.

    Both come from caches of different age: the one with the checkpoint's end is used. For a checkpoint that failed
    since `settled_before`, tasks may still report, so it is not final.
    """
    details = reading.stats if reading is not None else None
    stats = details if details is not None and (listed is None or details.final or not listed.final) else listed
    if stats is None:
        return None
    columns = {
        "status": stats.status,
        "is_savepoint": stats.is_savepoint,
        "checkpoint_type": stats.checkpoint_type,
        "savepoint_format": stats.savepoint_format,
        "triggered_at": stats.triggered_at,
        "failed_at": stats.failed_at,
        "failure_message": stats.failure_message,
        "external_path": stats.external_path,
        "discarded": stats.discarded or (listed is not None and listed.discarded),
        "final": stats.final and _read_to_the_end(reading, settled_before),
        **_totals(stats.totals),
    }
    if reading is not None and reading.operators:
        columns |= _slowest(reading.operators.values())
    return columns


def _read_to_the_end(reading: CheckpointReading | None, settled_before: datetime) -> bool:
    if reading is None or reading.stats is None:
        return reading is not None  # True if the engine forgot the checkpoint
    stats, totals = reading.stats, reading.stats.totals
    late = totals.num_acknowledged_subtasks < totals.num_subtasks
    expected = late and stats.failed_at is not None and stats.failed_at >= settled_before
    return reading.complete and not expected


SUBTASK_COLUMNS = tuple(_PER_SUBTASK)


def operator_rows(
    checkpoint_key: int, triggered_at: datetime, run: Run, reading: CheckpointReading
) -> list[dict[str, Any]]:
    """Return the rows of the checkpoint's operators. `triggered_at`: the stored trigger time of the checkpoint."""
    if reading.stats is None:
        return []
    vertices = {vertex["id"]: (position, vertex["name"]) for position, vertex in enumerate(run.vertices)}
    rows = []
    for vertex_id, task in reading.stats.tasks.items():
        position, name = vertices.get(vertex_id, (len(vertices), vertex_id))
        read = reading.operators.get(vertex_id)
        rows.append(
            {
                "checkpoint_id": checkpoint_key,
                "triggered_at": triggered_at,
                "vertex_id": vertex_id,
                "name": name,
                "position": position,
                **_totals(read.totals if read is not None else task),
                **_arrays(read, task.num_subtasks),
            }
        )
    return rows


# One call returns all figures of an operator or subtask, because a poll reads thousands of them.
_totals_of = attrgetter(*_TOTALS)
_figures_of = attrgetter(*_PER_SUBTASK.values())
_slow_figures_of = attrgetter(*SLOWEST.values())
_NO_FIGURES = (None,) * len(_PER_SUBTASK)


def _totals(totals: TaskStats) -> dict[str, Any]:
    return dict(zip(_TOTALS, _totals_of(totals), strict=True))


def _arrays(read: OperatorSubtasks | None, size: int) -> dict[str, Sequence[Any]]:
    """Return the figures as arrays indexed by subtask, empty if the engine forgot the subtasks."""
    if read is None or not size:
        return dict.fromkeys(_PER_SUBTASK, ())
    reported = {subtask.index: _figures_of(subtask) for subtask in read.subtasks}
    by_subtask = [reported.get(index, _NO_FIGURES) for index in range(size)]
    return dict(zip(_PER_SUBTASK, zip(*by_subtask, strict=True), strict=True))


def _slowest(operators: Iterable[OperatorSubtasks]) -> dict[str, int | None]:
    reported = [_slow_figures_of(subtask) for operator in operators for subtask in operator.subtasks]
    by_figure = zip(*reported, strict=True) if reported else repeat((), len(SLOWEST))
    return {column: _largest(values) for column, values in zip(SLOWEST, by_figure, strict=True)}


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
