"""The statistics of one checkpoint while they grow."""

from __future__ import annotations

from collections.abc import Sequence

from checkpointing.coordinator.stats_model import (
    NOT_YET,
    CheckpointStatistics,
    CheckpointStatsStatus,
    TaskStatistics,
    Totals,
    duration_since,
)
from checkpointing.model.checkpoint import CheckpointProperties
from checkpointing.model.messages import SubtaskMetrics, Vertex


class _TaskRecord:
    """Sums in place: a checkpoint of 10,000 subtasks adds 10,000 times before anybody asks for a total."""

    __slots__ = (
        "ack_timestamps",
        "checkpointed_size",
        "latest_ack_timestamp",
        "metrics",
        "num_acknowledged",
        "persisted_data",
        "processed_data",
        "state_size",
        "vertex_id",
    )

    def __init__(self, vertex_id: str, parallelism: int) -> None:
        self.vertex_id = vertex_id
        self.metrics: list[SubtaskMetrics | None] = [None] * parallelism
        self.ack_timestamps = [NOT_YET] * parallelism
        self.num_acknowledged = 0
        self.latest_ack_timestamp = NOT_YET
        self.checkpointed_size = 0
        self.state_size = 0
        self.processed_data = 0
        self.persisted_data = 0

    def add(self, index: int, metrics: SubtaskMetrics, ack_timestamp: int) -> None:
        self.metrics[index] = metrics
        self.ack_timestamps[index] = ack_timestamp
        self.num_acknowledged += 1
        if ack_timestamp > self.latest_ack_timestamp:
            self.latest_ack_timestamp = ack_timestamp
        self.checkpointed_size += metrics.checkpointed_size
        self.state_size += metrics.state_size
        self.processed_data += metrics.processed_data
        self.persisted_data += metrics.persisted_data

    @property
    def totals(self) -> Totals:
        return Totals(
            num_acknowledged=self.num_acknowledged,
            latest_ack_timestamp=self.latest_ack_timestamp,
            checkpointed_size=self.checkpointed_size,
            state_size=self.state_size,
            processed_data=self.processed_data,
            persisted_data=self.persisted_data,
        )

    def freeze(self, trigger_timestamp: int) -> TaskStatistics:
        return TaskStatistics(
            self.vertex_id, trigger_timestamp, self.totals, tuple(self.metrics), tuple(self.ack_timestamps)
        )


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
        self._external_path: str | None = None
        self._metadata_size = NOT_YET
        self._discarded = False
        self._failure_timestamp = NOT_YET
        self._failure_message: str | None = None
        self._waiting_for = ""
        self._frozen: CheckpointStatistics | None = None

    def report_subtask(self, vertex_id: str, index: int, metrics: SubtaskMetrics, ack_timestamp: int) -> bool:
        """False, and nothing changed, for a vertex or subtask that this checkpoint has not or that reported before."""
        task = self._tasks.get(vertex_id)
        if task is None or not 0 <= index < len(task.metrics) or task.metrics[index] is not None:
            return False
        task.add(index, metrics, ack_timestamp)
        self._frozen = None
        return True

    def delay(self, cause: str) -> None:
        self._waiting_for = cause
        self._frozen = None

    def complete(self, external_path: str, metadata_size: int) -> None:
        self.status = CheckpointStatsStatus.COMPLETED
        self._external_path = external_path
        self._metadata_size = metadata_size
        self._frozen = None

    def fail(self, failure_timestamp: int, failure_message: str) -> None:
        self.status = CheckpointStatsStatus.FAILED
        self._failure_timestamp = max(failure_timestamp, self._trigger_timestamp)
        self._failure_message = failure_message
        self._frozen = None

    def mark_discarded(self) -> None:
        self._discarded = True
        self._frozen = None

    def freeze(self) -> CheckpointStatistics:
        """The same object until something changes."""
        if self._frozen is None:
            totals = _sum([task.totals for task in self._tasks.values()])
            self._frozen = CheckpointStatistics(
                checkpoint_id=self.checkpoint_id,
                status=self.status,
                properties=self.properties,
                trigger_timestamp=self._trigger_timestamp,
                end_to_end_duration=self._end_to_end_duration(totals),
                num_subtasks=sum(len(task.metrics) for task in self._tasks.values()),
                totals=totals,
                tasks=tuple(task.freeze(self._trigger_timestamp) for task in self._tasks.values()),
                external_path=self._external_path,
                metadata_size=self._metadata_size,
                discarded=self._discarded,
                failure_timestamp=self._failure_timestamp,
                failure_message=self._failure_message,
                waiting_for=self._waiting_for,
            )
        return self._frozen

    def _end_to_end_duration(self, totals: Totals) -> int:
        if self.status is CheckpointStatsStatus.FAILED:
            return max(0, self._failure_timestamp - self._trigger_timestamp)
        return duration_since(self._trigger_timestamp, totals.latest_ack_timestamp)


def _sum(all_totals: Sequence[Totals]) -> Totals:
    return Totals(
        num_acknowledged=sum(totals.num_acknowledged for totals in all_totals),
        latest_ack_timestamp=max((totals.latest_ack_timestamp for totals in all_totals), default=NOT_YET),
        checkpointed_size=sum(totals.checkpointed_size for totals in all_totals),
        state_size=sum(totals.state_size for totals in all_totals),
        processed_data=sum(totals.processed_data for totals in all_totals),
        persisted_data=sum(totals.persisted_data for totals in all_totals),
    )
