"""Savepoints as they completed and failed."""

from __future__ import annotations

from monitoring.alerts.facts import Facts
from monitoring.alerts.gathering.ages import Marks, is_short, suspects
from monitoring.alerts.gathering.ask import Ask, Found, by_job, facts_of, select
from monitoring.alerts.gathering.runs import runs_of

_MARKS = """
SELECT job_id, max(completed_at) FILTER (WHERE completed_at <= %(since)s),
       min(completed_at) FILTER (WHERE completed_at > %(since)s)
FROM monitoring_savepoint
WHERE state = 'completed' AND completed_at <= %(until)s AND job_id = ANY(%(jobs)s) GROUP BY job_id
"""

_COMPLETED = """
SELECT job_id, completed_at, 0, id, id, '' FROM monitoring_savepoint
WHERE job_id = ANY(%(jobs)s) AND state = 'completed' AND completed_at <= %(until)s
"""

_SETTLED = """
SELECT job_id, coalesce(completed_at, requested_at), (state = 'failed')::int, id, id, left(failure, 300)
FROM monitoring_savepoint
WHERE state IN ('completed', 'failed') AND coalesce(completed_at, requested_at) <= %(until)s AND job_id = ANY(
    SELECT DISTINCT job_id FROM monitoring_savepoint
    WHERE state = 'failed' AND requested_at > %(since)s - interval '1 day' AND job_id = ANY(%(jobs)s)
    UNION SELECT unnest(%(must)s::bigint[])
)
"""

_FIRST_SEEN = "SELECT id, created_at FROM monitoring_job WHERE id = ANY(%(jobs)s)"


def gather_savepoints(ask: Ask) -> Found:
    parameters = {"since": ask.since, "until": ask.until, "jobs": list(ask.jobs)}
    runs = ask.once("runs", lambda: runs_of(ask.jobs, ask.since))
    marks = {job: Marks(last, first) for job, last, first in select(_MARKS, parameters)}
    first_seen = dict(select(_FIRST_SEEN, parameters))
    moved = suspects(ask, marks, runs, first_seen)
    if is_short(ask, runs):
        moved |= {job for job, mark in marks.items() if mark.first}
    events = by_job(select(_COMPLETED, parameters | {"jobs": list(moved)})) if moved else {}
    return {
        job: Facts(events=events.get(job, ()), runs=runs.get(job, ()), first_seen_at=first_seen.get(job))
        for job in moved
    }


def gather_failed_savepoints(ask: Ask) -> Found:
    """A failed one has the time at which it was asked for: when exactly it failed, nobody knows."""
    parameters = {"since": ask.since, "until": ask.until, "jobs": list(ask.jobs), "must": list(ask.must)}
    return facts_of(ask, by_job(select(_SETTLED, parameters)))
