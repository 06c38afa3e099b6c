"""Gather completed checkpoints, from which rules count how long no other has completed."""

from __future__ import annotations

from monitoring.alerts.gathering.ages import LIMIT, suspects
from monitoring.alerts.gathering.query import LONGEST, FactQuery, Found, by_job, select
from monitoring.alerts.gathering.runs import runs_of
from monitoring.alerts.kinds.data_loss_risk import DataLossRisk
from monitoring.alerts.rule_facts import Facts

# One index look-up per run (`last`): checkpoints complete in nearly the order of their triggers. A second look-up
# (`first`) follows only if the age may reach the limit by the end of the time range. Without a checkpoint, the age
# counts from the run's start. With `dead`, the newest run of a dead job counts, too.
# A checkpoint that completed by `since` was triggered by then: that condition lets PostgreSQL skip later partitions.
_MARKS = f"""
SELECT r.job_id, min({LIMIT}), coalesce(max(last.latest_ack_at), min(r.started_at)), min(first.latest_ack_at)
FROM monitoring_run r
LEFT JOIN LATERAL (
    SELECT c.latest_ack_at FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND c.triggered_at <= %(since)s AND c.latest_ack_at <= %(since)s
      AND (%(savepoints)s OR NOT c.is_savepoint)
    ORDER BY c.triggered_at DESC LIMIT 1
) last ON TRUE
LEFT JOIN LATERAL (
    SELECT c.latest_ack_at FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND c.latest_ack_at > %(since)s AND c.latest_ack_at <= %(until)s
      AND c.triggered_at > %(since)s - {LONGEST} AND (%(savepoints)s OR NOT c.is_savepoint)
      AND (last.latest_ack_at IS NULL OR extract(epoch FROM %(until)s - last.latest_ack_at) >= {LIMIT})
    ORDER BY c.triggered_at LIMIT 1
) first ON TRUE
WHERE r.job_id = ANY(%(jobs)s) AND (
    r.ended_at IS NULL OR r.ended_at > %(since)s OR (%(dead)s AND r.state IN ('FAILED', 'LOST') AND NOT EXISTS (
        SELECT FROM monitoring_run newer WHERE newer.job_id = r.job_id AND newer.number > r.number))
)
GROUP BY r.job_id
"""  # noqa: S608 (constants only)

_COMPLETIONS = """
SELECT r.job_id, c.latest_ack_at, 1, c.checkpoint_id, c.id, ''
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE r.job_id = ANY(%(jobs)s) AND c.status = 'COMPLETED' AND (%(savepoints)s OR NOT c.is_savepoint)
  AND c.latest_ack_at > %(since)s AND c.latest_ack_at <= %(until)s
UNION ALL
SELECT r.job_id, last.* FROM monitoring_run r CROSS JOIN LATERAL (
    SELECT c.latest_ack_at, 1, c.checkpoint_id, c.id, '' FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND c.triggered_at <= %(since)s AND c.latest_ack_at <= %(since)s
      AND (%(savepoints)s OR NOT c.is_savepoint)
    ORDER BY c.triggered_at DESC LIMIT 1
) last WHERE r.job_id = ANY(%(jobs)s)
"""


def gather_completions(query: FactQuery) -> Found:
    """Gather completions. For the data-loss risk, savepoints count, too, and dead jobs are included."""
    at_risk = isinstance(query.kind, DataLossRisk)
    parameters = {"since": query.since, "until": query.until, "savepoints": at_risk, "dead": at_risk}
    moved = list(suspects(query, _MARKS, parameters | {"jobs": list(query.jobs)}))
    runs = runs_of(moved, query.since)
    events = by_job(select(_COMPLETIONS, parameters | {"jobs": moved})) if moved else {}
    return {job: Facts(events=events.get(job, ()), runs=runs.get(job, ())) for job in moved}
