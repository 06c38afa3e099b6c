"""Metrics of every job, labelled by cluster and job. A job whose run ended keeps its last values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from monitoring.metrics.families import Family, counters, gauges

_LABELS = ("cluster", "job")

# Each job's newest completed checkpoint, of its three newest runs, costs one index look-up per run.
_JOBS = """
SELECT cluster.name, job.name, run.state,
       CASE WHEN run.ended_at IS NULL AND run.missing_since IS NULL
            THEN greatest(run.observed_at, cluster.last_answer_at) ELSE run.observed_at END,
       run.number - 1 + coalesce(restarts.count, 0),
       coalesce((run.counts ->> 'completed')::float8, 0),
       CASE WHEN run.counts -> 'failed' = 'null' THEN NULL ELSE coalesce((run.counts ->> 'failed')::float8, 0) END,
       coalesce((run.counts ->> 'in_progress')::float8, 0),
       newest.latest_ack_at, newest.end_to_end_duration, newest.checkpointed_size, newest.state_size,
       newest.alignment_max
FROM monitoring_job job
JOIN monitoring_cluster cluster ON cluster.id = job.cluster_id
JOIN monitoring_run run ON run.id = job.current_run_id
LEFT JOIN LATERAL (
    SELECT done.* FROM (SELECT id FROM monitoring_run WHERE job_id = job.id ORDER BY number DESC LIMIT 3) recent
    JOIN LATERAL (
        SELECT latest_ack_at, end_to_end_duration, checkpointed_size, state_size, alignment_max
        FROM monitoring_checkpoint
        WHERE run_id = recent.id AND status = 'COMPLETED' AND NOT is_savepoint
        ORDER BY triggered_at DESC LIMIT 1
    ) done ON TRUE
    ORDER BY done.latest_ack_at DESC NULLS LAST LIMIT 1
) newest ON TRUE
LEFT JOIN (
    SELECT run.job_id, count(*) FROM monitoring_runstatechange change
    JOIN monitoring_run run ON run.id = change.run_id
    WHERE change.target = 'RESTARTING' OR change.source = change.target
    GROUP BY run.job_id
) restarts ON restarts.job_id = job.id
WHERE cluster.enabled
ORDER BY cluster.name, job.name
"""


@dataclass(frozen=True)
class _Job:
    """One row of the query. Durations are in milliseconds, sizes in bytes."""

    cluster: str
    name: str
    state: str
    observed_at: datetime
    restarts: int
    completed: float
    failed: float | None  # None: the engine does not report the number
    in_progress: float
    last_at: datetime | None
    duration: int | None
    checkpointed_size: int | None
    state_size: int | None
    alignment: int | None

    @property
    def labels(self) -> tuple[str, str]:
        return self.cluster, self.name


def collect() -> Iterator[Family]:
    """Yield the metrics of all jobs, with one query."""
    with connection.cursor() as cursor:
        cursor.execute(_JOBS)
        jobs = [_Job(*row) for row in cursor.fetchall()]
    yield from _states(jobs)
    yield from _counts(jobs)
    yield from _last_completed(jobs)


def _states(jobs: list[_Job]) -> Iterator[Family]:
    yield gauges(
        "job_state",
        "1 for the state that the engine last named.",
        (*_LABELS, "state"),
        [((*j.labels, j.state), 1) for j in jobs],
    )
    yield gauges(
        "job_observed_timestamp_seconds",
        "When the engine last named the job.",
        _LABELS,
        [(j.labels, j.observed_at.timestamp()) for j in jobs],
    )


def _counts(jobs: list[_Job]) -> Iterator[Family]:
    yield counters(
        "job_restarts",
        "Times the job was started again, by its engine or as a new run.",
        _LABELS,
        [(j.labels, j.restarts) for j in jobs],
    )
    yield counters(
        "job_checkpoints_completed",
        "Completed checkpoints, by the engine's own count, which each new job manager starts at 0.",
        _LABELS,
        [(j.labels, j.completed) for j in jobs],
    )
    yield counters(
        "job_checkpoints_failed",
        "Failed checkpoints, by the engine's own count, which each new job manager starts at 0.",
        _LABELS,
        [(j.labels, j.failed) for j in jobs],
    )
    yield gauges(
        "job_checkpoints_in_progress", "Checkpoints under way.", _LABELS, [(j.labels, j.in_progress) for j in jobs]
    )


def _last_completed(jobs: list[_Job]) -> Iterator[Family]:
    def seconds(milliseconds: int | None) -> float | None:
        return None if milliseconds is None else milliseconds / 1000

    last = "job_last_completed_checkpoint"
    yield gauges(
        f"{last}_timestamp_seconds",
        "When the newest completed checkpoint was acknowledged to the end.",
        _LABELS,
        [(j.labels, j.last_at.timestamp() if j.last_at else None) for j in jobs],
    )
    yield gauges(
        f"{last}_duration_seconds", "Its end-to-end duration.", _LABELS, [(j.labels, seconds(j.duration)) for j in jobs]
    )
    yield gauges(
        f"{last}_alignment_seconds",
        "The longest alignment of its subtasks.",
        _LABELS,
        [(j.labels, seconds(j.alignment)) for j in jobs],
    )
    yield gauges(f"{last}_size_bytes", "What it wrote.", _LABELS, [(j.labels, j.checkpointed_size) for j in jobs])
    yield gauges(
        f"{last}_state_size_bytes", "The full size of its state.", _LABELS, [(j.labels, j.state_size) for j in jobs]
    )
