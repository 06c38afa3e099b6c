"""Build the facts of a diagnosis from stored rows. The number of queries does not depend on the size of the history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db import connection

from monitoring.diagnosis.diagnosis_facts import (
    CheckpointFacts,
    DiagnosisFacts,
    Normal,
    OperatorFacts,
    Raised,
    Settings,
)
from monitoring.diagnosis.signs.exceptions import AFTER, BEFORE
from monitoring.history.baselines import forecast_from_rollups, usual_from_rollups
from monitoring.history.rows import Wish, page
from monitoring.models import (
    Checkpoint,
    Cluster,
    ConfigurationPart,
    Job,
    OperatorCheckpoint,
    Run,
    RunException,
    RunState,
)
from monitoring.outages import is_late

LATELY = timedelta(days=7)
EXCEPTIONS = 10
TROUBLED = frozenset({RunState.FAILED, RunState.FAILING, RunState.RESTARTING})
TRACE = 20_000  # characters of a stack trace that are read

NEWEST = 100
_MEDIANS = ("start_delay_max", "alignment_max", "sync_max", "async_max", "checkpointed_size", "state_size")

# The newest hundred checkpoints of the ten newest runs, with one index look-up for each run.
_NORMAL = f"""
SELECT count(*), percentile_cont(0.5) WITHIN GROUP (ORDER BY end_to_end_duration),
       percentile_cont(0.95) WITHIN GROUP (ORDER BY end_to_end_duration),
       {", ".join(f"percentile_cont(0.5) WITHIN GROUP (ORDER BY {column})" for column in _MEDIANS)}
FROM (
    SELECT newest.* FROM (SELECT id FROM monitoring_run WHERE job_id = %(job)s ORDER BY number DESC LIMIT 10) r
    CROSS JOIN LATERAL (
        SELECT * FROM monitoring_checkpoint c
        WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.triggered_at < %(before)s
        ORDER BY c.triggered_at DESC LIMIT {NEWEST}
    ) newest
    ORDER BY newest.triggered_at DESC LIMIT {NEWEST}
) usual
"""  # noqa: S608 (constants only)

_LATELY = """
SELECT (SELECT count(*) FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id
        WHERE r.job_id = %(job)s AND c.status = 'FAILED' AND NOT c.is_savepoint AND c.triggered_at > %(since)s),
       (SELECT count(*) FROM monitoring_runstatechange s JOIN monitoring_run r ON r.id = s.run_id
        WHERE r.job_id = %(job)s AND s.target = 'RESTARTING' AND s.at > %(since)s)
       + (SELECT count(*) FROM monitoring_run r
          WHERE r.job_id = %(job)s AND r.number > 1 AND r.started_at > %(since)s),
       (SELECT c.triggered_at FROM monitoring_checkpoint c WHERE c.run_id = %(run)s
        ORDER BY c.triggered_at DESC LIMIT 1)
"""


def facts_of_checkpoint(
    checkpoint: Checkpoint, operators: Iterable[OperatorCheckpoint], now: datetime
) -> DiagnosisFacts:
    """Return the facts of a checkpoint, which the caller should select together with its run, job and cluster."""
    run = checkpoint.run
    found = facts_of(checkpoint, operators, now)
    end = found.ended_at or now
    around = RunException.objects.filter(run=run, at__gte=found.triggered_at - BEFORE, at__lte=end + AFTER)
    return DiagnosisFacts(
        now=now,
        checkpoint=found,
        normal=normal_before(run.job, checkpoint.triggered_at),
        usual=usual_from_rollups(run.job, checkpoint.triggered_at),
        raised=_raised(around) if found.has_failed else (),
        settings=settings_of(run.job, run),
        engine=run.job.cluster.engine,
        version=version_of(run.job.cluster),
    )


def facts_of_job(job: Job, now: datetime) -> DiagnosisFacts:
    """Return the facts of the job now. It reads the job's current run and cluster."""
    run, cluster = job.current_run, job.cluster
    failed, restarted, last_triggered_at = _lately(job, now)
    troubled = run is not None and run.state in TROUBLED
    return DiagnosisFacts(
        now=now,
        normal=normal_before(job, now),
        usual=usual_from_rollups(job, now),
        forecast=forecast_from_rollups(job, now),
        raised=_raised(RunException.objects.filter(run=run)) if troubled else (),
        settings=settings_of(job, run),
        engine=cluster.engine,
        version=version_of(cluster),
        runs=run is not None and run.state == "RUNNING" and run.missing_since is None,
        run_started_at=run.started_at if run else None,
        last_triggered_at=last_triggered_at,
        silent_since=silent_since(cluster, now),
        recent_failures=failed,
        recent_restarts=restarted,
        has_savepoint_schedule=job.scheduled,
        manages_savepoints=not job.managed_elsewhere,
        manages_restarts=job.auto_restart,
    )


def silent_since(cluster: Cluster, now: datetime) -> datetime | None:
    """Return since when Waymark has no information about the cluster: it does not answer or is not polled."""
    if cluster.unreachable_since is None and (not cluster.enabled or is_late(cluster, now)):
        return cluster.last_answer_at
    return cluster.unreachable_since


def facts_of_death(job: Job, now: datetime) -> DiagnosisFacts:
    """Return the facts of a failed job with the exceptions of all its runs, newest first.

    A job whose current run is LOST has no exceptions: the engine does not report why it no longer knows the job.
    """
    is_lost = job.current_run is not None and job.current_run.state == RunState.LOST
    raised = () if is_lost else _raised(RunException.objects.filter(run__job=job))
    return DiagnosisFacts(now=now, raised=raised, settings=settings_of(job, job.current_run), runs=False)


def facts_of(checkpoint: Checkpoint, operators: Iterable[OperatorCheckpoint], now: datetime) -> CheckpointFacts:
    ended = checkpoint.failed_at or checkpoint.latest_ack_at
    pending = checkpoint.status == "IN_PROGRESS"
    inputs = {str(vertex.get("id")): vertex.get("inputs") for vertex in checkpoint.run.vertices}
    return CheckpointFacts(
        number=checkpoint.checkpoint_id,
        status=checkpoint.status,
        triggered_at=checkpoint.triggered_at,
        ended_at=None if pending else ended,
        lasted=_lasted(checkpoint, now if pending else ended),
        failure=checkpoint.failure_message,
        is_savepoint=checkpoint.is_savepoint,
        acknowledged=checkpoint.num_acknowledged_subtasks,
        subtasks=checkpoint.num_subtasks,
        start_delay=checkpoint.start_delay_max,
        alignment=checkpoint.alignment_max,
        sync=checkpoint.sync_max,
        async_=checkpoint.async_max,
        checkpointed_size=checkpoint.checkpointed_size,
        state_size=checkpoint.state_size,
        operators=[_operator(each, inputs.get(each.vertex_id)) for each in operators],
    )


def normal_before(job: Job, before: datetime) -> Normal:
    """Return what is normal. Checkpoints are read from the whole history if PostgreSQL has none before this time."""
    with connection.cursor() as cursor:
        cursor.execute(_NORMAL, {"job": job.pk, "before": before})
        found = Normal(*(cursor.fetchone() or ()))
    if found.count:
        return found
    usual = (Wish("status", "=", "COMPLETED"), Wish("is_savepoint", "=", False), Wish("triggered_at", "<", before))
    return _normal_of(page(job, usual, limit=NEWEST).checkpoints)


def _normal_of(checkpoints: Sequence[Checkpoint]) -> Normal:
    """Return the figures that _NORMAL computes."""

    def percentile(column: str, share: float = 0.5) -> float | None:
        known = [value for each in checkpoints if (value := getattr(each, column)) is not None]
        return float(np.quantile(known, share)) if known else None

    duration = "end_to_end_duration"
    return Normal(len(checkpoints), percentile(duration), percentile(duration, 0.95), *map(percentile, _MEDIANS))


def settings_of(job: Job, run: Run | None) -> Settings:
    known = getattr(job, "configuration", None)
    parts = known.parts if known is not None else {}
    execution = parts.get(ConfigurationPart.EXECUTION)
    config = run.checkpoint_config if run is not None else {}
    return Settings.read(config if isinstance(config, dict) else {}, execution if isinstance(execution, dict) else {})


def version_of(cluster: Cluster) -> tuple[int, ...]:
    numbers = cluster.version.split("-")[0].split(".")[:2]
    return tuple(int(each) for each in numbers) if all(each.isdecimal() for each in numbers) else ()


def _lasted(checkpoint: Checkpoint, ended: datetime | None) -> int | None:
    """Return the engine's duration, or for a failed or pending checkpoint the time from its trigger to `ended`."""
    if checkpoint.status == "COMPLETED" and checkpoint.end_to_end_duration is not None:
        return checkpoint.end_to_end_duration
    if ended is None:
        return checkpoint.end_to_end_duration
    return max(0, int((ended - checkpoint.triggered_at) / timedelta(milliseconds=1)))


def _operator(row: OperatorCheckpoint, inputs: Sequence[str] | None) -> OperatorFacts:
    return OperatorFacts(
        name=row.name,
        vertex=row.vertex_id,
        inputs=inputs,
        subtasks=row.num_subtasks,
        acknowledged=row.num_acknowledged_subtasks,
        end_to_end=row.subtask_end_to_end,
        sync=row.subtask_sync,
        async_=row.subtask_async,
        alignment=row.subtask_alignment,
        start_delay=row.subtask_start_delay,
        state_size=row.subtask_state_size,
    )


def _raised(rows: Any) -> Sequence[Raised]:
    newest = rows.order_by("-at", "-id")[:EXCEPTIONS]
    return [
        Raised(
            at=row.at,
            text=_text(row),
            stacktrace=row.stacktrace[:TRACE],
            task=row.task,
            host=row.host,
        )
        for row in newest
    ]


def _text(row: RunException) -> str:
    """Return the root cause, or else the message, with the exception's class if the message does not name it."""
    said = row.root_cause or row.message
    short = row.name.rpartition(".")[2]
    return said if not short or short in said or row.root_cause else f"{short}: {said}"


def _lately(job: Job, now: datetime) -> tuple[int, int, datetime | None]:
    with connection.cursor() as cursor:
        cursor.execute(_LATELY, {"job": job.pk, "since": now - LATELY, "run": job.current_run_id})
        failed, restarted, last = cursor.fetchone() or (0, 0, None)
        return failed, restarted, last
