"""Gather failed checkpoints by their time of failure, and checkpoints in the order in which they ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from monitoring.alerts.gathering.ordered import without_ordered_aborts
from monitoring.alerts.gathering.query import LONGEST, FactQuery, Found, by_job, facts_of, select
from monitoring.alerts.kinds.failed_in_total import FailedInTotal, first_moment

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

# Count the failures first, so that messages are read only for jobs that have enough of them.
_FAILURES = """
WITH failed AS (
    SELECT r.job_id, c.failed_at, c.checkpoint_id, c.id, c.failure_message, c.run_id,
           count(*) OVER (PARTITION BY r.job_id) AS failures
    FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id
    WHERE c.status = 'FAILED' AND c.failed_at > %(after)s AND c.failed_at <= %(until)s
      AND (%(all)s OR r.job_id = ANY(%(jobs)s))
)
SELECT job_id, failed_at, 1, checkpoint_id, id, left(failure_message, 300), run_id FROM failed
WHERE failures >= %(least)s OR job_id = ANY(%(must)s)
"""

_SETTLED = f"""
WITH suspects AS (
    SELECT DISTINCT r.job_id FROM monitoring_checkpoint c JOIN monitoring_run r ON r.id = c.run_id
    WHERE c.status = 'FAILED' AND NOT c.is_savepoint AND c.failed_at > %(since)s AND c.failed_at <= %(until)s
      AND (%(all)s OR r.job_id = ANY(%(jobs)s))
    UNION SELECT unnest(%(must)s::bigint[])
), floors AS (
    SELECT s.job_id, (
        SELECT max(last.latest_ack_at) FROM monitoring_run r CROSS JOIN LATERAL (
            SELECT c.latest_ack_at FROM monitoring_checkpoint c
            WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.latest_ack_at <= %(since)s
            ORDER BY c.triggered_at DESC LIMIT 1
        ) last WHERE r.job_id = s.job_id
    ) AS floor FROM suspects s
)
SELECT f.job_id, coalesce(c.failed_at, c.latest_ack_at) AS at, (c.status = 'FAILED')::int, c.checkpoint_id, c.id,
       left(c.failure_message, 300), c.run_id
FROM floors f
JOIN monitoring_run r ON r.job_id = f.job_id AND (r.ended_at IS NULL OR r.ended_at >= coalesce(f.floor, '-infinity'))
CROSS JOIN LATERAL (
    SELECT * FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND NOT c.is_savepoint AND c.status IN ('COMPLETED', 'FAILED')
      AND c.triggered_at > coalesce(f.floor, '-infinity') - {LONGEST}
) c
WHERE (c.status = 'FAILED' AND c.failed_at > coalesce(f.floor, '-infinity') AND c.failed_at <= %(until)s)
   OR (c.status = 'COMPLETED' AND c.latest_ack_at >= coalesce(f.floor, '-infinity') AND c.latest_ack_at <= %(until)s)
"""  # noqa: S608 (constants only)


def gather_failures(query: FactQuery) -> Found:
    after = _first_counted(query) if isinstance(query.kind, FailedInTotal) else query.counted_from
    rows = select(_FAILURES, _parameters(query) | {"after": after, "least": query.least})
    return facts_of(query, by_job(without_ordered_aborts(rows)))


def gather_settled(query: FactQuery) -> Found:
    return facts_of(query, by_job(without_ordered_aborts(select(_SETTLED, _parameters(query)))))


def _first_counted(query: FactQuery) -> datetime:
    """Return the time right before the earliest day from which a rule counts."""
    starts = (first_moment(terms) or _BEGINNING for terms in query.terms)
    return min(starts, default=_BEGINNING) - timedelta.resolution


def _parameters(query: FactQuery) -> dict[str, object]:
    """Return the query's parameters.

    For more than 1,000 jobs, the query uses the index on time and reads all jobs. The caller drops the others.
    """
    jobs = list(query.jobs)
    return {
        "since": query.since,
        "until": query.until,
        "jobs": jobs if len(jobs) <= 1000 else [],
        "all": len(jobs) > 1000,
        "must": list(query.must),
    }
