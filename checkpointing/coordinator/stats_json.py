"""Flink's JSON and gauges of the checkpoint statistics, as pure functions of `stats_model`.

`checkpoints` is the answer of `/jobs/:id/checkpoints`, `checkpoint_details` of `…/details/:cid`,
`checkpoint_subtasks` of `…/details/:cid/subtasks/:vid`. `checkpoint_gauges` are the metrics of the job.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from checkpointing.coordinator.stats_model import (
    NOT_YET,
    NOTHING_BUFFERED,
    CheckpointStatistics,
    CheckpointStatsSnapshot,
    CheckpointStatsStatus,
    CompletedSummary,
    Distribution,
    RestoredCheckpoint,
    SubtaskStatistics,
    TaskStatistics,
    Totals,
    distribution_without_quantiles,
)

Json = dict[str, Any]

NO_PATH = "n/a"
NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"

_CLASS_NAME = {
    CheckpointStatsStatus.IN_PROGRESS: "in_progress",
    CheckpointStatsStatus.COMPLETED: "completed",
    CheckpointStatsStatus.FAILED: "failed",
}


def checkpoints(snapshot: CheckpointStatsSnapshot) -> Json:
    return {
        "counts": asdict(snapshot.counts),
        "summary": _summary(snapshot.summary),
        "latest": {
            "completed": _checkpoint_or_none(snapshot.latest_completed),
            "savepoint": _checkpoint_or_none(snapshot.latest_savepoint),
            "failed": _checkpoint_or_none(snapshot.latest_failed),
            "restored": _restored(snapshot.latest_restored),
        },
        "history": [_checkpoint(statistics, {}) for statistics in snapshot.history],
    }


def checkpoint_details(statistics: CheckpointStatistics) -> Json:
    tasks = {
        task.vertex_id: {"id": statistics.checkpoint_id, "status": statistics.status.value, **_task(task)}
        for task in statistics.tasks
    }
    return _checkpoint(statistics, tasks)


def checkpoint_subtasks(statistics: CheckpointStatistics, vertex_id: str) -> Json | None:
    """Return the JSON of a vertex's subtasks, or None if the checkpoint has no such vertex."""
    task = statistics.task(vertex_id)
    if task is None:
        return None
    return {
        "id": statistics.checkpoint_id,
        "status": statistics.status.value,
        **_task(task),
        "summary": _subtask_summary([subtask for subtask in task.subtasks if subtask is not None]),
        "subtasks": [_subtask(index, subtask) for index, subtask in enumerate(task.subtasks)],
    }


def external_path(location: str) -> str:
    """Return a location as Flink shows it: local paths as `file:/…`, others unchanged, memory as a placeholder."""
    if location.startswith("jobmanager:"):
        return NOT_ADDRESSABLE
    return f"file:{location}" if location.startswith("/") else location


def _summary(summary: CompletedSummary) -> Json:
    return {
        "checkpointed_size": _distribution(summary.checkpointed_size),
        "state_size": _distribution(summary.state_size),
        "end_to_end_duration": _distribution(summary.end_to_end_duration),
        "alignment_buffered": _distribution(NOTHING_BUFFERED),
        "processed_data": _distribution(summary.processed_data),
        "persisted_data": _distribution(summary.persisted_data),
    }


def _distribution(distribution: Distribution) -> Json:
    """Return a distribution as JSON. Like Flink, write the text "NaN" for a quantile of too few values."""
    quantiles = distribution.quantiles
    shown = dict.fromkeys(("p50", "p90", "p95", "p99", "p999"), "NaN") if quantiles is None else asdict(quantiles)
    return {"min": distribution.minimum, "max": distribution.maximum, "avg": distribution.average, **shown}


def _checkpoint_or_none(statistics: CheckpointStatistics | None) -> Json | None:
    return None if statistics is None else _checkpoint(statistics, {})


def _checkpoint(statistics: CheckpointStatistics, tasks: Json) -> Json:
    is_savepoint = statistics.properties.is_savepoint
    return {
        "className": _CLASS_NAME[statistics.status],
        "id": statistics.checkpoint_id,
        "status": statistics.status.value,
        "is_savepoint": is_savepoint,
        "savepointFormat": "NATIVE" if is_savepoint else None,
        "trigger_timestamp": statistics.trigger_timestamp,
        **_totals(statistics.totals, statistics.end_to_end_duration, statistics.num_subtasks),
        "checkpoint_type": statistics.properties.kind.value,
        "tasks": tasks,
        **_outcome(statistics),
    }


def _outcome(statistics: CheckpointStatistics) -> Json:
    match statistics.status:
        case CheckpointStatsStatus.COMPLETED:
            path = statistics.external_path
            return {
                "external_path": NOT_ADDRESSABLE if path is None else external_path(path),
                "discarded": statistics.discarded,
            }
        case CheckpointStatsStatus.FAILED:
            return {
                "failure_timestamp": statistics.failure_timestamp,
                "failure_message": statistics.failure_message,
            }
        case CheckpointStatsStatus.IN_PROGRESS:
            return {"waiting_for": statistics.waiting_for} if statistics.waiting_for else {}  # not a field of Flink


def _totals(totals: Totals, end_to_end_duration: int, num_subtasks: int) -> Json:
    return {
        "latest_ack_timestamp": totals.latest_ack_timestamp,
        "checkpointed_size": totals.checkpointed_size,
        "state_size": totals.state_size,
        "end_to_end_duration": end_to_end_duration,
        "alignment_buffered": 0,
        "processed_data": totals.processed_data,
        "persisted_data": totals.persisted_data,
        "num_subtasks": num_subtasks,
        "num_acknowledged_subtasks": totals.num_acknowledged,
    }


def _task(task: TaskStatistics) -> Json:
    return _totals(task.totals, task.end_to_end_duration, task.num_subtasks)


def _restored(restored: RestoredCheckpoint | None) -> Json | None:
    if restored is None:
        return None
    return {
        "id": restored.checkpoint_id,
        "restore_timestamp": restored.restore_timestamp,
        "is_savepoint": restored.is_savepoint,
        "external_path": None if restored.external_path is None else external_path(restored.external_path),
    }


def _subtask_summary(subtasks: list[SubtaskStatistics]) -> Json:
    def over(*values: int) -> Json:
        return _distribution(distribution_without_quantiles(values))

    return {
        "checkpointed_size": over(*(subtask.metrics.checkpointed_size for subtask in subtasks)),
        "state_size": over(*(subtask.metrics.state_size for subtask in subtasks)),
        "end_to_end_duration": over(*(subtask.end_to_end_duration for subtask in subtasks)),
        "checkpoint_duration": {
            "sync": over(*(subtask.metrics.sync_duration for subtask in subtasks)),
            "async": over(*(subtask.metrics.async_duration for subtask in subtasks)),
        },
        "alignment": {
            "buffered": _distribution(NOTHING_BUFFERED),
            "processed": over(*(subtask.metrics.processed_data for subtask in subtasks)),
            "persisted": over(*(subtask.metrics.persisted_data for subtask in subtasks)),
            "duration": over(*(subtask.metrics.alignment_duration for subtask in subtasks)),
        },
        "start_delay": over(*(subtask.metrics.start_delay for subtask in subtasks)),
    }


def _subtask(index: int, subtask: SubtaskStatistics | None) -> Json:
    if subtask is None:
        return {"className": "pending", "index": index, "status": "pending_or_failed"}
    metrics = subtask.metrics
    return {
        "className": "completed",
        "index": index,
        "ack_timestamp": subtask.ack_timestamp,
        "end_to_end_duration": subtask.end_to_end_duration,
        "checkpointed_size": metrics.checkpointed_size,
        "state_size": metrics.state_size,
        "checkpoint": {"sync": metrics.sync_duration, "async": metrics.async_duration},
        "alignment": {
            "buffered": 0,
            "processed": metrics.processed_data,
            "persisted": metrics.persisted_data,
            "duration": metrics.alignment_duration,
        },
        "start_delay": metrics.start_delay,
        "unaligned_checkpoint": False,
        "aborted": False,
        "status": "completed",
    }


def checkpoint_gauges(snapshot: CheckpointStatsSnapshot) -> dict[str, int | str]:
    """Return the gauges by name. A gauge without a value is −1, or "n/a" for the path.

    The `lastCheckpoint…` gauges describe the newest completed checkpoint or savepoint.
    """
    counts, restored = snapshot.counts, snapshot.latest_restored
    completed = [c for c in (snapshot.latest_completed, snapshot.latest_savepoint) if c is not None]
    return {
        "totalNumberOfCheckpoints": counts.total,
        "numberOfInProgressCheckpoints": counts.in_progress,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
        "lastCheckpointRestoreTimestamp": NOT_YET if restored is None else restored.restore_timestamp,
        **_last_completed(max(completed, key=lambda c: c.checkpoint_id, default=None)),
    }


def _last_completed(last: CheckpointStatistics | None) -> dict[str, int | str]:
    path = None if last is None else last.external_path
    return {
        "lastCompletedCheckpointId": NOT_YET if last is None else last.checkpoint_id,
        "lastCheckpointCompletedTimestamp": NOT_YET if last is None else last.totals.latest_ack_timestamp,
        "lastCheckpointDuration": NOT_YET if last is None else last.end_to_end_duration,
        "lastCheckpointSize": NOT_YET if last is None else last.totals.checkpointed_size,
        "lastCheckpointFullSize": NOT_YET if last is None else last.totals.state_size,
        "lastCheckpointMetadataSize": NOT_YET if last is None else last.metadata_size,
        "lastCheckpointProcessedData": NOT_YET if last is None else last.totals.processed_data,
        "lastCheckpointPersistedData": NOT_YET if last is None else last.totals.persisted_data,
        "lastCheckpointExternalPath": NO_PATH if path is None else external_path(path),
    }
