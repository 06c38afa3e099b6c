"""Read the facts of thousands of jobs in a constant number of queries and with little CPU time.

The statement returns times as seconds, because the conversion of thousands of timestamps takes half of the total time.
Each cluster is read once. A row becomes a Job and a Run only when a page shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Model, QuerySet
from django.db.models.base import ModelState

from dashboard.health import JobFacts
from dashboard.language import rendered
from dashboard.queries.facts import failed_restart, open_attempts, unresolved_incidents
from monitoring.models import Cluster, Incident, Job, RestartAttempt, Run
from monitoring.reasons.columns import stored

M = TypeVar("M", bound=Model)
# Limits for the newest checkpoint of a running job, so that PostgreSQL reads only the newest partitions. A checkpoint
# is in the future only if the engine's clock is wrong.
_MAX_AGE, _AHEAD = timedelta(days=2), timedelta(hours=1)

# Each job with its current run and its newest checkpoint. `young` is the current run's checkpoint within the limits;
# `old` is the newest checkpoint of any run, and is read only if `young` is missing.
_RUNS = r"""
SELECT j.id, j.cluster_id, j.current_run_id, j.name, j.labels, j.auto_restart, j.automation_paused,
       j.savepoint_interval_s, j.savepoint_cron, r.state, split_part(ltrim(r.exception, E' \t\r\n'), E'\n', 1),
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
_JOB_COLUMNS = (
    *("id", "cluster_id", "current_run_id", "name", "labels", "auto_restart", "automation_paused"),
    *("savepoint_interval_s", "savepoint_cron"),
)
_RUN_COLUMNS = ("state", "exception", "interval", "observed_at", "started_at", "missing_since")
_CHECKPOINT_COLUMNS = ("completed_at", "duration", "size")
_ALL_COLUMNS = (*_JOB_COLUMNS, *_RUN_COLUMNS, *_CHECKPOINT_COLUMNS)


class _FleetFacts(JobFacts):
    """Facts from one row of _RUNS. The Job and Run instances are created at the first access."""

    row: tuple[Any, ...]
    pk: int = 0
    name: str = ""
    state: str | None = None
    exception: str = ""
    started_at: datetime | None = None
    missing_since: datetime | None = None
    configured_interval: object = None

    @cached_property
    def job(self) -> Job:
        values = dict(zip(_JOB_COLUMNS, self.row, strict=False))
        values["labels"] = json.loads(values["labels"])
        return _build_instance(Job, values, cluster=self.cluster, current_run=self.run)

    @cached_property
    def run(self) -> Run | None:
        values = dict(zip(_ALL_COLUMNS, self.row, strict=True))
        if values["current_run_id"] is None:
            return None
        moments = {name: _moment(values[name]) for name in ("observed_at", "started_at", "missing_since")}
        config = {"interval": values["interval"]}
        run = {"state": values["state"], "exception": values["exception"], "checkpoint_config": config}
        return _build_instance(Run, {"id": values["current_run_id"], **run, **moments})


def read_fleet_facts(jobs: QuerySet[Job], now: datetime) -> list[JobFacts]:
    """Return the facts that lists need.

    The newest failure and the number of the newest checkpoint are missing: only the job's page and the API show them.
    Access to any other field of the job or run costs one query.
    """
    ids = list(jobs.values_list("pk", flat=True))
    rows = _rows(ids, now)
    clusters = Cluster.objects.in_bulk({row[1] for row in rows})
    found = [_build_facts(row, clusters[row[1]]) for row in rows]
    incidents, attempts = unresolved_incidents(ids), open_attempts(ids)
    if incidents or attempts:
        for facts in found:
            _add_incidents(facts, incidents.get(facts.pk, ()), attempts.get(facts.pk))
    return found


def label_keys(found: Iterable[JobFacts]) -> list[str]:
    """Return the keys of the labels of the jobs and their clusters. Equal labels of thousands of jobs are read once."""
    own: set[str] = set()
    of_clusters: dict[int, dict[str, str]] = {}
    for facts in found:
        of_clusters[facts.cluster.pk] = facts.cluster.labels
        if isinstance(facts, _FleetFacts):
            own.add(facts.row[4])
    return sorted({str(key) for labels in (*map(json.loads, own), *of_clusters.values()) for key in labels})


def _rows(jobs: list[int], now: datetime) -> list[tuple[Any, ...]]:
    """Return the rows of _RUNS. The ids are sent as one text, because psycopg converts a list number by number."""
    with connection.cursor() as cursor:
        ids = f"{{{','.join(map(str, jobs))}}}"
        cursor.execute(_RUNS, {"jobs": ids, "young": now - _MAX_AGE, "ahead": now + _AHEAD})
        return list(cursor.fetchall())


def _build_facts(row: tuple[Any, ...], cluster: Cluster) -> JobFacts:
    """Return facts without a call of `__init__`, which would set each field and is too slow for thousands of rows."""
    pk, _, _, name, *_, state, exception, interval, _, started, missing, completed, took, size = row
    facts = _FleetFacts.__new__(_FleetFacts)
    facts.__dict__.update(
        row=row,
        pk=pk,
        name=name,
        cluster=cluster,
        state=state,
        exception=exception,
        configured_interval=interval,
        started_at=_moment(started),
        missing_since=_moment(missing),
        last_completed_at=_moment(completed),
        last_duration_ms=took,
        state_size=size,
    )
    return facts


def _add_incidents(facts: JobFacts, incidents: Sequence[Incident], attempt: RestartAttempt | None) -> None:
    if incidents:
        worst = incidents[0]
        values = {"worst_severity": worst.severity, "incident_sentence": rendered(stored(worst, "sentence"))}
        facts.__dict__.update(incidents=len(incidents), failed_restart=failed_restart(incidents), **values)
    facts.__dict__["attempt"] = attempt


def _build_instance(model: type[M], values: dict[str, Any], **related: Model | None) -> M:
    """Return an instance of a stored row, as `only(*values)` would, with the given related objects."""
    made, state = model.__new__(model), ModelState()
    state.adding, state.db = False, DEFAULT_DB_ALIAS
    state.fields_cache = related
    made.__dict__.update(values, _state=state)
    return made


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
