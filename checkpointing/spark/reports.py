"""The driver's reports to the job manager, as messages over the link."""

from __future__ import annotations

from collections.abc import Mapping

from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    DelayCheckpoint,
    DriverState,
    ExceptionInfo,
    FinishCause,
    QueryProgress,
    StatusUpdate,
)
from checkpointing.spark.agent import Acknowledged
from checkpointing.spark.job import SparkJob
from checkpointing.spark.job_manager_link import JobManagerLink
from checkpointing.spark.task_metrics import BatchFigures, EventLog


class JobManagerReports:
    """Sends reports. `job` is set once the queries of the job run."""

    def __init__(self, spec: DriverSpec, link: JobManagerLink, events: EventLog) -> None:
        self.job: SparkJob | None = None
        self._spec = spec
        self._link = link
        self._events = events

    def status(
        self,
        state: DriverState,
        exception: ExceptionInfo | None = None,
        finish_cause: FinishCause | None = None,
        *,
        has_advanced: bool = True,
        queries: Mapping[str, QueryProgress] | None = None,
    ) -> None:
        vertices = self.job.vertices if self.job is not None else ()
        at_least_once = self.job is not None and self.job.is_at_least_once
        job_id, attempt = self._spec.job_id, self._spec.attempt
        session_id = self._link.session_id
        self._link.send(
            StatusUpdate(
                session_id,
                job_id,
                attempt,
                state,
                vertices,
                exception,
                at_least_once,
                finish_cause,
                has_advanced,
                dict(queries or {}),
            )
        )

    def acknowledge(self, checkpoint_id: int, acknowledged: Acknowledged) -> None:
        durable = acknowledged.durable
        self._link.send(
            AcknowledgeCheckpoint(
                session_id=self._link.session_id,
                job_id=self._spec.job_id,
                attempt=self._spec.attempt,
                checkpoint_id=checkpoint_id,
                vertex_id=durable.vertex.id,
                subtask=durable.subtask,
                metrics=acknowledged.metrics,
                files=durable.files,
                contents=dict(durable.contents),
                batches={} if acknowledged.batch is None else {durable.vertex.query: acknowledged.batch},
                channels=acknowledged.channels,
            )
        )

    def delay(self, checkpoint_id: int, cause: str, silent_ms: int | None) -> None:
        job_id, attempt = self._spec.job_id, self._spec.attempt
        self._link.send(DelayCheckpoint(self._link.session_id, job_id, attempt, checkpoint_id, cause, silent_ms))

    def decline(self, checkpoint_id: int, reason: str, cause: str) -> None:
        job_id, attempt = self._spec.job_id, self._spec.attempt
        self._link.send(DeclineCheckpoint(self._link.session_id, job_id, attempt, checkpoint_id, reason, cause))

    def figures(self, query: str, batch: int) -> BatchFigures | None:
        """Return the figures of the batch at which the query was cut. They are all 0 if it ran before the restore.

        Spark reports no figures of a continuous query, whose tasks continue from epoch to epoch.
        """
        if self.job is None:
            return None
        running = next(each for each in self.job.queries if each.name == query)
        if running.files.is_continuous:
            return BatchFigures(batch, is_measured=False)
        if self.job.restored.get(query) == batch:
            return BatchFigures(batch)
        return self._events.batch(running.spark_id, batch)
