"""Gather completed and failed savepoints."""

from __future__ import annotations

from monitoring.alerts.gathering.ages import LIMIT, suspects
from monitoring.alerts.gathering.query import FactQuery, Found, by_job, facts_of, select
from monitoring.alerts.gathering.runs import runs_of
from monitoring.alerts.rule_facts import Facts

_MARKS = f"""
SELECT r.job_id, min({LIMIT}),
       coalesce((SELECT max(completed_at) FROM monitoring_savepoint s
                 WHERE s.job_id = r.job_id AND state = 'completed' AND gone_at IS NULL
                 AND completed_at <= %(since)s),
                (SELECT created_at FROM monitoring_job j WHERE j.id = r.job_id)),
       (SELECT min(completed_at) FROM monitoring_savepoint s WHERE s.job_id = r.job_id AND state = 'completed'
        AND gone_at IS NULL AND completed_at > %(since)s AND completed_at <= %(until)s)
FROM monitoring_run r WHERE r.job_id = ANY(%(jobs)s) AND (r.ended_at IS NULL OR r.ended_at > %(since)s)
GROUP BY r.job_id
"""  # noqa: S608 (constants only)

_COMPLETED = """
SELECT job_id, completed_at, 0, id, id, '' FROM monitoring_savepoint
WHERE job_id = ANY(%(jobs)s) AND state = 'completed' AND gone_at IS NULL AND completed_at <= %(until)s
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


def gather_savepoints(query: FactQuery) -> Found:
    parameters = {"since": query.since, "until": query.until, "jobs": list(query.jobs)}
    moved = list(suspects(query, _MARKS, parameters))
    asked = parameters | {"jobs": moved}
    runs, first_seen = runs_of(moved, query.since), dict(select(_FIRST_SEEN, asked))
    events = by_job(select(_COMPLETED, asked)) if moved else {}
    return {
        job: Facts(events=events.get(job, ()), runs=runs.get(job, ()), first_seen_at=first_seen.get(job))
        for job in moved
    }


def gather_failed_savepoints(query: FactQuery) -> Found:
    """Gather savepoints for failure streaks. A failed one has its request time, because the failure's is not known."""
    parameters = {"since": query.since, "until": query.until, "jobs": list(query.jobs), "must": list(query.must)}
    return facts_of(query, by_job(select(_SETTLED, parameters)))
