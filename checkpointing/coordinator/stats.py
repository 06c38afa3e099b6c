"""The statistics of a job's checkpoints: Flink's CheckpointStatsTracker. Its values are in `stats_model`.

As in Flink, each job manager starts with empty statistics. The monitoring side stores the history.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from checkpointing.coordinator.stats_model import (
    NOT_YET,
    CheckpointCounts,
    CheckpointStatistics,
    CheckpointStatsSnapshot,
    CheckpointStatsStatus,
    CompletedSummary,
    RestoredCheckpoint,
    RunningSummary,
    TaskStatistics,
    Totals,
    duration_since,
)
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint
from checkpointing.model.messages import SubtaskMetrics, Vertex

DEFAULT_HISTORY_SIZE = 10


class _TaskRecord:
    """The figures of one vertex. Totals are kept as sums, because 10,000 subtasks may report before a total is read."""

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
    """The statistics of one checkpoint. Reporting a subtask costs the same for any number of subtasks."""

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
        """Add a subtask's figures. Return False for an unknown vertex or subtask, or one that has reported before."""
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
        """Return the statistics. It is the same object until something changes."""
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


class CheckpointStatsTracker:
    """Collects statistics.

    The coordinator writes it on its thread; any thread may read the frozen value of `snapshot()`.
    """

    def __init__(self, *, history_size: int = DEFAULT_HISTORY_SIZE) -> None:
        if history_size < 0:
            raise ValueError(f"history_size: {history_size} is not allowed; at least 0")
        self._history_size = history_size
        self._counts = CheckpointCounts()
        self._in_progress: dict[int, CheckpointRecord] = {}
        self._history: OrderedDict[int, CheckpointRecord] = OrderedDict()
        self._latest_completed: CheckpointRecord | None = None
        self._latest_savepoint: CheckpointRecord | None = None
        self._latest_failed: CheckpointRecord | None = None
        self._latest_restored: RestoredCheckpoint | None = None
        self._checkpointed_size = RunningSummary()
        self._state_size = RunningSummary()
        self._duration = RunningSummary()
        self._processed_data = RunningSummary()
        self._persisted_data = RunningSummary()
        self._snapshot: CheckpointStatsSnapshot | None = None

    def snapshot(self) -> CheckpointStatsSnapshot:
        """Return all statistics. It is the same object until something changes."""
        if self._snapshot is None:
            self._snapshot = CheckpointStatsSnapshot(
                counts=self._counts,
                summary=self._summary(),
                latest_completed=_frozen(self._latest_completed),
                latest_savepoint=_frozen(self._latest_savepoint),
                latest_failed=_frozen(self._latest_failed),
                latest_restored=self._latest_restored,
                history=tuple(record.freeze() for record in reversed(self._history.values())),
            )
        return self._snapshot

    def report_pending(
        self,
        checkpoint_id: int,
        trigger_timestamp: int,
        properties: CheckpointProperties,
        vertices: Sequence[Vertex],
    ) -> None:
        record = CheckpointRecord(checkpoint_id, trigger_timestamp, properties, vertices)
        self._in_progress[checkpoint_id] = record
        self._history[checkpoint_id] = record
        if len(self._history) > self._history_size:
            self._history.popitem(last=False)
        self._count(total=1, in_progress=1)

    def report_subtask(
        self, checkpoint_id: int, vertex_id: str, index: int, metrics: SubtaskMetrics, ack_timestamp: int
    ) -> bool:
        """Add one subtask's figures, even after its checkpoint failed.

        Return False if the checkpoint is unknown or does not expect this subtask.
        """
        record = self._find(checkpoint_id)
        if record is None or not record.report_subtask(vertex_id, index, metrics, ack_timestamp):
            return False
        self._snapshot = None
        return True

    def report_delayed(self, checkpoint_id: int, cause: str) -> None:
        """Store a text about what a checkpoint in progress waits for, "" if it does not wait."""
        record = self._in_progress.get(checkpoint_id)
        if record is not None:
            record.delay(cause)
            self._snapshot = None

    def report_completed(
        self, checkpoint_id: int, checkpoint: CompletedCheckpoint, metadata_size: int = NOT_YET
    ) -> None:
        """Store a completed checkpoint. `metadata_size` is the size of its `_metadata` in bytes."""
        record = self._in_progress.pop(checkpoint_id)
        record.complete(checkpoint.location, metadata_size)
        if record.properties.is_savepoint:
            self._latest_savepoint = _newer(self._latest_savepoint, record)
        else:
            self._latest_completed = _newer(self._latest_completed, record)
        self._add_to_summary(record)
        self._count(in_progress=-1, completed=1)

    def report_failed(self, checkpoint_id: int, failure_timestamp: int, failure_message: str) -> None:
        record = self._in_progress.pop(checkpoint_id)
        record.fail(failure_timestamp, failure_message)
        self._latest_failed = _newer(self._latest_failed, record)
        self._count(in_progress=-1, failed=1)

    def report_failed_without_pending(self) -> None:
        """Count a checkpoint that failed before it got an ID. It is in no history."""
        self._count(total=1, failed=1)

    def report_restored(
        self, checkpoint_id: int, *, restore_timestamp: int, is_savepoint: bool, external_path: str | None
    ) -> None:
        self._latest_restored = RestoredCheckpoint(checkpoint_id, restore_timestamp, is_savepoint, external_path)
        self._count(restored=1)

    def report_discarded(self, checkpoint_id: int) -> None:
        """Note that the files of a completed checkpoint are being removed, so it can no longer be restored."""
        record = self._find(checkpoint_id)
        if record is not None and record.status is CheckpointStatsStatus.COMPLETED:
            record.mark_discarded()
            self._snapshot = None

    def _find(self, checkpoint_id: int) -> CheckpointRecord | None:
        record = self._in_progress.get(checkpoint_id) or self._history.get(checkpoint_id)
        if record is not None:
            return record
        latest = (self._latest_completed, self._latest_savepoint, self._latest_failed)
        return next((kept for kept in latest if kept is not None and kept.checkpoint_id == checkpoint_id), None)

    def _count(
        self, *, restored: int = 0, total: int = 0, in_progress: int = 0, completed: int = 0, failed: int = 0
    ) -> None:
        counts = self._counts
        self._counts = replace(
            counts,
            restored=counts.restored + restored,
            total=counts.total + total,
            in_progress=counts.in_progress + in_progress,
            completed=counts.completed + completed,
            failed=counts.failed + failed,
        )
        self._snapshot = None

    def _add_to_summary(self, record: CheckpointRecord) -> None:
        statistics = record.freeze()
        self._checkpointed_size.add(statistics.totals.checkpointed_size)
        self._state_size.add(statistics.totals.state_size)
        self._duration.add(statistics.end_to_end_duration)
        self._processed_data.add(statistics.totals.processed_data)
        self._persisted_data.add(statistics.totals.persisted_data)

    def _summary(self) -> CompletedSummary:
        return CompletedSummary(
            checkpointed_size=self._checkpointed_size.distribution(),
            state_size=self._state_size.distribution(),
            end_to_end_duration=self._duration.distribution(),
            processed_data=self._processed_data.distribution(),
            persisted_data=self._persisted_data.distribution(),
        )


def _frozen(record: CheckpointRecord | None) -> CheckpointStatistics | None:
    return None if record is None else record.freeze()


def _newer(known: CheckpointRecord | None, record: CheckpointRecord) -> CheckpointRecord:
    return record if known is None or record.checkpoint_id > known.checkpoint_id else known
