"""Completed checkpoints as the moments from which their absence is counted."""

from __future__ import annotations

from monitoring.alerts.facts import Facts
from monitoring.alerts.gathering.ages import Marks, is_short, least_limit, suspects
from monitoring.alerts.gathering.ask import LONGEST, Ask, Found, by_job, select
from monitoring.alerts.gathering.runs import runs_of

# Two look-ups in an index a run: its checkpoints complete in nearly the order of their triggers.
_MARKS = f"""
SELECT r.job_id, max(last.latest_ack_at), min(first.latest_ack_at)
FROM monitoring_run r
LEFT JOIN LATERAL (
    SELECT c.latest_ack_at FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND c.latest_ack_at <= %(since)s
      AND (%(savepoints)s OR NOT c.is_savepoint)
    ORDER BY c.triggered_at DESC LIMIT 1
) last ON TRUE
LEFT JOIN LATERAL (
    SELECT c.latest_ack_at FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND c.latest_ack_at > %(since)s AND c.latest_ack_at <= %(until)s
      AND c.triggered_at > %(since)s - {LONGEST} AND (%(savepoints)s OR NOT c.is_savepoint)
    ORDER BY c.triggered_at LIMIT 1
) first ON TRUE
WHERE r.job_id = ANY(%(jobs)s) GROUP BY r.job_id
"""  # noqa: S608 (constants only)

_GAPS = f"""
SELECT job_id FROM (
    SELECT r.job_id, c.latest_ack_at AS at,
           c.latest_ack_at - lag(c.latest_ack_at) OVER (PARTITION BY r.job_id ORDER BY c.latest_ack_at) AS gap
    FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
    WHERE r.job_id = ANY(%(jobs)s) AND c.status = 'COMPLETED' AND (%(savepoints)s OR NOT c.is_savepoint)
      AND c.latest_ack_at > %(since)s AND c.latest_ack_at <= %(until)s
      AND c.triggered_at > %(since)s - {LONGEST}
) completed GROUP BY job_id HAVING max(gap) >= %(least)s OR %(until)s - max(at) >= %(least)s
"""  # noqa: S608 (constants only)

_COMPLETIONS = """
SELECT r.job_id, c.latest_ack_at, 1, c.checkpoint_id, c.id, ''
FROM monitoring_run r JOIN monitoring_checkpoint c ON c.run_id = r.id
WHERE r.job_id = ANY(%(jobs)s) AND c.status = 'COMPLETED' AND (%(savepoints)s OR NOT c.is_savepoint)
  AND c.latest_ack_at > %(since)s AND c.latest_ack_at <= %(until)s
UNION ALL
SELECT r.job_id, last.* FROM monitoring_run r CROSS JOIN LATERAL (
    SELECT c.latest_ack_at, 1, c.checkpoint_id, c.id, '' FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND c.latest_ack_at <= %(since)s
      AND (%(savepoints)s OR NOT c.is_savepoint)
    ORDER BY c.triggered_at DESC LIMIT 1
) last WHERE r.job_id = ANY(%(jobs)s)
"""


def gather_completions(ask: Ask) -> Found:
    jobs = list(ask.jobs)
    runs = ask.once("runs", lambda: runs_of(jobs, ask.since))
    parameters = {"since": ask.since, "until": ask.until, "savepoints": ask.kind.name == "data_loss_risk"}
    marks = {job: Marks(last, first) for job, last, first in select(_MARKS, parameters | {"jobs": jobs})}
    moved = suspects(ask, marks, runs, {})
    if is_short(ask, runs):
        least = {"least": least_limit(ask, runs)}
        moved |= {job for (job,) in select(_GAPS, parameters | least | {"jobs": jobs})}
    events = by_job(select(_COMPLETIONS, parameters | {"jobs": list(moved)})) if moved else {}
    return {job: Facts(events=events.get(job, ()), runs=runs.get(job, ())) for job in moved}
