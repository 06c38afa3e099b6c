"""Read the facts that determine a job's health, for any number of jobs in a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model, QuerySet

from dashboard.health import JobFacts
from dashboard.language import rendered
from monitoring.models import AttemptState, Incident, IncidentKind, IncidentState, Job, RestartAttempt, Severity
from monitoring.reasons.columns import stored

M = TypeVar("M", bound=Model)
MANY = 100
OPEN_ATTEMPT_STATES = [state.value for state in AttemptState if state.open]

_LISTED = (
    *("name", "labels", "cluster", "current_run", "auto_restart", "automation_paused", "savepoint_interval_s"),
    *("savepoint_cron", "managed_elsewhere", "created_at"),
    *(f"current_run__{name}" for name in ("engine_job_id", "state", "exception", "checkpoint_config")),
    *(f"current_run__{name}" for name in ("observed_at", "started_at", "missing_since")),
)
# The newest completed checkpoint of the current run, or else of the newest run that has one.
_COMPLETED = """
SELECT j.id AS job_id, coalesce(own.latest_ack_at, earlier.latest_ack_at) AS latest_ack_at,
       coalesce(own.checkpoint_id, earlier.checkpoint_id) AS checkpoint_id,
       coalesce(own.end_to_end_duration, earlier.end_to_end_duration) AS end_to_end_duration,
       coalesce(own.state_size, earlier.state_size) AS state_size
FROM monitoring_job j
LEFT JOIN monitoring_newestcompleted own ON own.run_id = j.current_run_id
LEFT JOIN LATERAL (
    SELECT n.* FROM monitoring_run r JOIN monitoring_newestcompleted n ON n.run_id = r.id
    WHERE r.job_id = j.id AND own.run_id IS NULL ORDER BY r.number DESC LIMIT 1
) earlier ON TRUE
WHERE j.id = ANY(%s)
"""

_FAILED = """
SELECT DISTINCT ON (r.job_id) r.job_id, c.failed_at, c.failure_message
FROM monitoring_run r
JOIN LATERAL (
    SELECT coalesce(failed_at, triggered_at) AS failed_at, failure_message FROM monitoring_checkpoint
    WHERE run_id = r.id AND status = 'FAILED' AND triggered_at > %s ORDER BY triggered_at DESC LIMIT 1
) c ON TRUE
WHERE r.job_id = ANY(%s) AND (r.ended_at IS NULL OR r.ended_at > %s)
ORDER BY r.job_id, r.number DESC
"""


def select(sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[dict[str, Any]]:
    """Execute a statement and return its rows as dictionaries by column name."""
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def jobs_with_runs() -> QuerySet[Job]:
    return Job.objects.select_related("cluster", "current_run").defer(
        "current_run__exceptions", "current_run__summary", "current_run__vertices"
    )


def jobs_of_lists() -> QuerySet[Job]:
    """Return the jobs with only the columns that lists show. Jobs of one cluster share its instance."""
    return Job.objects.select_related("current_run").prefetch_related("cluster").only(*_LISTED)


def gather_facts(jobs: Iterable[Job], now: datetime, *, with_failures: bool = True) -> list[JobFacts]:
    """Return the facts of jobs that were read by `jobs_with_runs` or `jobs_of_lists`, in the same order.

    `with_failures`: read the newest failure of each job.
    """
    listed = list(jobs)
    ids = [job.pk for job in listed]
    completed = newest_completed(ids)
    day = now - timedelta(days=1)
    failed = {row["job_id"]: row for row in select(_FAILED, [day, ids, day])} if with_failures else {}
    incidents, attempts = unresolved_incidents(ids), open_attempts(ids)
    return [
        _facts(job, completed.get(job.pk), failed.get(job.pk), incidents.get(job.pk, []), attempts.get(job.pk))
        for job in listed
    ]


def newest_completed(ids: list[int]) -> dict[int, dict[str, Any]]:
    """Return the newest completed checkpoint by job. The values are None for a job without one."""
    return {row["job_id"]: row for row in select(_COMPLETED, [ids])} if ids else {}


def unresolved_incidents(ids: list[int]) -> dict[int, list[Incident]]:
    """Return the unresolved incidents by job, those with the highest severity first, then the newest."""
    found: dict[int, list[Incident]] = {}
    unresolved = _of(ids, Incident.objects.exclude(state=IncidentState.RESOLVED).order_by("-opened_at"))
    for incident in sorted(unresolved, key=lambda i: i.severity != Severity.CRITICAL):
        found.setdefault(incident.job_id or 0, []).append(incident)
    return found


def failed_restart(incidents: Iterable[Incident]) -> str:
    """Return the sentence of the first incident about a failed restart of the job, or "" if there is none."""
    found = (rendered(stored(each, "sentence")) for each in incidents if each.kind == IncidentKind.NOT_RESTARTED)
    return next(found, "")


def open_attempts(ids: list[int]) -> dict[int, RestartAttempt]:
    under_way = _of(ids, RestartAttempt.objects.filter(state__in=OPEN_ATTEMPT_STATES))
    return {attempt.job_id: attempt for attempt in under_way}


def _of(ids: Sequence[int], rows: QuerySet[M]) -> QuerySet[M]:
    """Filter the rows by job if there are few jobs.

    For many jobs, read all rows: few are open, and a statement with thousands of ids would cost more.
    """
    return rows.filter(job__in=ids) if len(ids) <= MANY else rows


def _facts(
    job: Job,
    completed: dict[str, Any] | None,
    failed: dict[str, Any] | None,
    incidents: list[Incident],
    attempt: RestartAttempt | None,
) -> JobFacts:
    done, broken = completed or {}, failed or {}
    return JobFacts(
        job=job,
        cluster=job.cluster,
        run=job.current_run,
        last_completed_at=done.get("latest_ack_at"),
        last_completed_id=done.get("checkpoint_id"),
        last_duration_ms=done.get("end_to_end_duration"),
        state_size=done.get("state_size"),
        last_failed_at=broken.get("failed_at"),
        last_failure=broken.get("failure_message", ""),
        incidents=len(incidents),
        worst_severity=incidents[0].severity if incidents else "",
        incident_sentence=rendered(stored(incidents[0], "sentence")) if incidents else "",
        failed_restart=failed_restart(incidents),
        attempt=attempt,
    )
