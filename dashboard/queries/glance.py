"""What a list of thousands of jobs knows of each, in a constant number of queries and little of the page's time.

Moments come as seconds: Django makes each datetime in Python, which for thousands takes as long as all else together.
Clusters are made once, and rows become jobs and runs without Django's way over every field that was not asked for.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Model, QuerySet
from django.db.models.base import ModelState

from dashboard.health import JobFacts
from dashboard.language import incident_sentence
from dashboard.queries.facts import open_attempts, unresolved_incidents
from monitoring.models import Cluster, Job, Run

M = TypeVar("M", bound=Model)
# Of nearly every job that runs the newest is younger, and none is from the future but by an engine's clock: then only
# the newest partitions are looked into, and not those that were made ahead.
_YOUNG, _AHEAD = timedelta(days=2), timedelta(hours=1)

# Each job with its current run, and the newest checkpoint: of that run, if young, else of the newest run that has one.
_RUNS = r"""
SELECT j.id, r.id, r.state, split_part(ltrim(r.exception, E' \t\r\n'), E'\n', 1),
       CASE jsonb_typeof(r.checkpoint_config -> 'interval')
           WHEN 'number' THEN (r.checkpoint_config ->> 'interval')::float8 END,
       extract(epoch FROM r.observed_at)::float8, extract(epoch FROM r.started_at)::float8,
       extract(epoch FROM r.missing_since)::float8,
       extract(epoch FROM coalesce(young.latest_ack_at, old.latest_ack_at))::float8,
       coalesce(young.end_to_end_duration, old.end_to_end_duration), coalesce(young.state_size, old.state_size)
FROM monitoring_job j
LEFT JOIN monitoring_run r ON r.id = j.current_run_id
LEFT JOIN LATERAL (
    SELECT id, latest_ack_at, end_to_end_duration, state_size FROM monitoring_checkpoint
    WHERE run_id = r.id AND status = 'COMPLETED' AND NOT is_savepoint
      AND triggered_at > %(young)s AND triggered_at < %(ahead)s
    ORDER BY triggered_at DESC LIMIT 1
) young ON TRUE
LEFT JOIN LATERAL (
    SELECT c.* FROM (
        SELECT id FROM monitoring_run WHERE job_id = j.id AND young.id IS NULL ORDER BY number DESC OFFSET 0
    ) o
    CROSS JOIN LATERAL (
        SELECT latest_ack_at, end_to_end_duration, state_size FROM monitoring_checkpoint
        WHERE run_id = o.id AND status = 'COMPLETED' AND NOT is_savepoint
        ORDER BY triggered_at DESC LIMIT 1
    ) c
    LIMIT 1
) old ON TRUE
WHERE j.id = ANY(%(jobs)s::bigint[])
"""
_OF_A_JOB = (
    *("cluster_id", "current_run_id", "name", "labels", "auto_restart", "automation_paused"),
    *("savepoint_interval_s", "savepoint_cron"),
)


def facts_at_a_glance(jobs: QuerySet[Job], now: datetime) -> list[JobFacts]:
    """Without what only a job's own page and the API tell: its newest failure and the number of its newest checkpoint.
    Anything else of a job or run than what is read here would be a query each."""
    rows = {row[0]: row for row in jobs.values_list("pk", *_OF_A_JOB)}
    ids = list(rows)
    clusters = Cluster.objects.in_bulk({row[1] for row in rows.values()})
    incidents, attempts = unresolved_incidents(ids), open_attempts(ids)
    found = []
    for pk, run_pk, *of_run, completed, took, size in _runs(ids, now):
        row, troubles = rows[pk], incidents.get(pk, ())
        cluster, run = clusters[row[1]], None if run_pk is None else _run(run_pk, *of_run)
        found.append(
            JobFacts(
                job=_made(Job, dict(zip(("id", *_OF_A_JOB), row, strict=True)), cluster=cluster, current_run=run),
                cluster=cluster,
                run=run,
                last_completed_at=_moment(completed),
                last_duration_ms=took,
                state_size=size,
                incidents=len(troubles),
                worst_severity=troubles[0].severity if troubles else "",
                incident_sentence=incident_sentence(troubles[0]) if troubles else "",
                attempt=attempts.get(pk),
            )
        )
    return found


def _runs(jobs: list[int], now: datetime) -> list[tuple[Any, ...]]:
    """Rows of _RUNS, as they come. The ids go as one text: a list is put together number by number."""
    with connection.cursor() as cursor:
        ids = f"{{{','.join(map(str, jobs))}}}"
        cursor.execute(_RUNS, {"jobs": ids, "young": now - _YOUNG, "ahead": now + _AHEAD})
        return list(cursor.fetchall())


def _run(
    pk: int,
    state: str,
    exception: str,
    interval: float | None,
    observed: float,
    started: float,
    missing: float | None,
) -> Run:
    return _made(
        Run,
        {
            "id": pk,
            "state": state,
            "exception": exception,
            "checkpoint_config": {"interval": interval},
            "observed_at": _moment(observed),
            "started_at": _moment(started),
            "missing_since": _moment(missing),
        },
    )


def _made(model: type[M], values: dict[str, Any], **related: Model | None) -> M:
    """A stored row's instance, as `only(*values)` makes it, with those that it refers to."""
    made, state = model.__new__(model), ModelState()
    state.adding, state.db = False, DEFAULT_DB_ALIAS
    state.fields_cache = related
    made.__dict__.update(values, _state=state)
    return made


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
