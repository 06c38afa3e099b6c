"""What the driver tells the job manager, as messages over the link."""

from __future__ import annotations

from checkpointing.jobs.driver_spec import DriverSpec
from checkpointing.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    DriverState,
    ExceptionInfo,
    StatusUpdate,
    SubtaskMetrics,
)
from checkpointing.spark.job import SparkJob
from checkpointing.spark.job_manager_link import JobManagerLink
from checkpointing.spark.snapshot import DurableSubtask
from checkpointing.spark.task_metrics import BatchFigures, EventLog


class JobManagerReports:
    """`job` is set once its queries run."""

    def __init__(self, spec: DriverSpec, link: JobManagerLink, events: EventLog) -> None:
        self.job: SparkJob | None = None
        self._spec = spec
        self._link = link
        self._events = events

    def status(self, state: DriverState, exception: ExceptionInfo | None = None) -> None:
        vertices = self.job.vertices if self.job is not None else ()
        job_id, attempt = self._spec.job_id, self._spec.attempt
        self._link.send(StatusUpdate(self._link.session_id, job_id, attempt, state, vertices, exception))

    def acknowledge(self, checkpoint_id: int, durable: DurableSubtask, metrics: SubtaskMetrics, batch: int) -> None:
        self._link.send(
            AcknowledgeCheckpoint(
                session_id=self._link.session_id,
                job_id=self._spec.job_id,
                attempt=self._spec.attempt,
                checkpoint_id=checkpoint_id,
                vertex_id=durable.vertex.id,
                subtask=durable.subtask,
                metrics=metrics,
                files=durable.files,
                contents=dict(durable.contents),
                batches={durable.vertex.query: batch},
            )
        )

    def decline(self, checkpoint_id: int, reason: str, cause: str) -> None:
        job_id, attempt = self._spec.job_id, self._spec.attempt
        self._link.send(DeclineCheckpoint(self._link.session_id, job_id, attempt, checkpoint_id, reason, cause))

    def figures(self, query: str, batch: int) -> BatchFigures | None:
        """Of the barrier's batch. All 0 when it ran before the restore: this attempt did nothing for it."""
        if self.job is None:
            return None
        if self.job.restored.get(query) == batch:
            return BatchFigures(batch)
        spark_id = next(each.spark_id for each in self.job.queries if each.name == query)
        return self._events.batch(spark_id, batch)
