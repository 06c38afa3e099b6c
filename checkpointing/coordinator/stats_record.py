"""The statistics of one checkpoint while they grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from checkpointing.coordinator.checkpoint import CheckpointProperties
from checkpointing.coordinator.stats_model import (
    NOT_YET,
    CheckpointStatistics,
    CheckpointStatsStatus,
    SubtaskStatistics,
    TaskStatistics,
    Totals,
)
from checkpointing.messages import SubtaskMetrics, Vertex


class _TaskRecord:
    def __init__(self, vertex_id: str, parallelism: int) -> None:
        self.vertex_id = vertex_id
        self.totals = Totals()
        self.subtasks: list[SubtaskStatistics | None] = [None] * parallelism

    def freeze(self, trigger_timestamp: int) -> TaskStatistics:
        duration = _duration(trigger_timestamp, self.totals)
        return TaskStatistics(self.vertex_id, duration, self.totals, tuple(self.subtasks))


class CheckpointRecord:
    """One checkpoint from trigger to end. Reporting a subtask costs the same for any number of subtasks."""

    def __init__(
        self,
        checkpoint_id: int,
        trigger_timestamp: int,
        properties: CheckpointProperties,
        vertices: Sequence[Vertex],
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.properties = properties
        self.status = CheckpointStatsStatus.IN_PROGRESS
        self._trigger_timestamp = trigger_timestamp
        self._tasks = {vertex.id: _TaskRecord(vertex.id, vertex.parallelism) for vertex in vertices}
        self._totals = Totals()
        self._external_path: str | None = None
        self._discarded = False
        self._failure_timestamp = NOT_YET
        self._failure_message: str | None = None
        self._frozen: CheckpointStatistics | None = None

    def report_subtask(self, vertex_id: str, index: int, metrics: SubtaskMetrics, ack_timestamp: int) -> bool:
        """False, and nothing changed, for a vertex or subtask that this checkpoint has not or that reported before."""
        task = self._tasks.get(vertex_id)
        if task is None or not 0 <= index < len(task.subtasks) or task.subtasks[index] is not None:
            return False
        duration = max(0, ack_timestamp - self._trigger_timestamp)
        task.subtasks[index] = SubtaskStatistics(index, ack_timestamp, duration, metrics)
        task.totals = _added(task.totals, metrics, ack_timestamp)
        self._totals = _added(self._totals, metrics, ack_timestamp)
        self._frozen = None
        return True

    def complete(self, external_path: str) -> None:
        self.status = CheckpointStatsStatus.COMPLETED
        self._external_path = external_path
        self._frozen = None

    def fail(self, failure_timestamp: int, failure_message: str) -> None:
        self.status = CheckpointStatsStatus.FAILED
        self._failure_timestamp = failure_timestamp
        self._failure_message = failure_message
        self._frozen = None

    def mark_discarded(self) -> None:
        self._discarded = True
        self._frozen = None

    def freeze(self) -> CheckpointStatistics:
        """The same object until something changes."""
        if self._frozen is None:
            self._frozen = CheckpointStatistics(
                checkpoint_id=self.checkpoint_id,
                status=self.status,
                properties=self.properties,
                trigger_timestamp=self._trigger_timestamp,
                end_to_end_duration=self._end_to_end_duration(),
                num_subtasks=sum(len(task.subtasks) for task in self._tasks.values()),
                totals=self._totals,
                tasks=tuple(task.freeze(self._trigger_timestamp) for task in self._tasks.values()),
                external_path=self._external_path,
                discarded=self._discarded,
                failure_timestamp=self._failure_timestamp,
                failure_message=self._failure_message,
            )
        return self._frozen

    def _end_to_end_duration(self) -> int:
        if self.status is CheckpointStatsStatus.FAILED:
            return max(0, self._failure_timestamp - self._trigger_timestamp)
        return _duration(self._trigger_timestamp, self._totals)


def _added(totals: Totals, metrics: SubtaskMetrics, ack_timestamp: int) -> Totals:
    return replace(
        totals,
        num_acknowledged=totals.num_acknowledged + 1,
        latest_ack_timestamp=max(totals.latest_ack_timestamp, ack_timestamp),
        checkpointed_size=totals.checkpointed_size + metrics.checkpointed_size,
        state_size=totals.state_size + metrics.state_size,
        processed_data=totals.processed_data + metrics.processed_data,
        persisted_data=totals.persisted_data + metrics.persisted_data,
    )


def _duration(trigger_timestamp: int, totals: Totals) -> int:
    if totals.num_acknowledged == 0:
        return NOT_YET
    return max(0, totals.latest_ack_timestamp - trigger_timestamp)
