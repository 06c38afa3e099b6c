"""Gather runs: dead ones, restarts, and the checkpoint configuration of live runs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

from monitoring.alerts.gathering.query import FactQuery, Found, by_job, facts_of, select
from monitoring.alerts.kinds.counting import NEW_RUN
from monitoring.alerts.rule_facts import Facts, RunFact
from monitoring.exceptions import exception_text

_RUNS = """
SELECT r.job_id, r.number, r.started_at, r.ended_at, r.state IN ('FAILED', 'LOST'), r.state = 'LOST',
       r.checkpoint_config ->> 'interval', r.checkpoint_config ->> 'timeout',
       r.checkpoint_config ->> 'tolerable_failed_checkpoints',
       CASE WHEN r.state <> 'LOST' THEN left(r.exception, 300) ELSE '' END,
       CASE WHEN r.state = 'FAILED' THEN (r.exceptions -> 0) - 'stacktrace' END
FROM monitoring_run r
WHERE r.job_id = ANY(%(jobs)s) AND (
    r.ended_at IS NULL OR r.ended_at > %(since)s
    OR r.number = (SELECT max(number) FROM monitoring_run newest WHERE newest.job_id = r.job_id)
)
ORDER BY r.job_id, r.number
"""

_DEAD = """
SELECT job_id FROM monitoring_run
WHERE state IN ('FAILED', 'LOST') AND ended_at > %(since)s AND ended_at <= %(until)s AND job_id = ANY(%(jobs)s)
UNION
SELECT j.id FROM monitoring_job j JOIN monitoring_run r ON r.id = j.current_run_id
WHERE r.state IN ('FAILED', 'LOST') AND j.id = ANY(%(jobs)s)
"""

_RESTARTS = """
WITH restarts AS (
    SELECT r.job_id, s.at, 1 AS value, r.number, s.id, s.why
    FROM monitoring_runstatechange s JOIN monitoring_run r ON r.id = s.run_id
    WHERE s.target = 'RESTARTING' AND s.at > %(after)s AND s.at <= %(until)s
    UNION ALL
    SELECT job_id, started_at, %(new_run)s, number, id, '' FROM monitoring_run later
    WHERE number > 1 AND started_at > %(after)s AND started_at <= %(until)s AND NOT EXISTS (
        -- It ended by itself: a run that follows is the next one, no restart.
        SELECT FROM monitoring_run ended
        WHERE ended.job_id = later.job_id AND ended.number = later.number - 1 AND ended.outcome <> '{}'
    ) AND NOT EXISTS (
        -- A person ordered the restart. Its attempt knows the engine job ID before it is linked to the run.
        SELECT FROM monitoring_restartattempt a
        WHERE a.job_id = later.job_id AND a.trigger <> 'automatic'
          AND (a.new_run_id = later.id OR a.engine_job_id = later.engine_job_id)
    )
), counted AS (SELECT *, count(*) OVER (PARTITION BY job_id) AS restarts FROM restarts WHERE job_id = ANY(%(jobs)s))
SELECT job_id, at, value, number, id, left(why, 200) FROM counted
WHERE restarts >= %(least)s OR job_id = ANY(%(must)s)
"""


def runs_of(jobs: Collection[int], since: datetime) -> dict[int, list[RunFact]]:
    """Return, by job, the runs that were live after `since` and the newest run, oldest first."""
    found: dict[int, list[RunFact]] = defaultdict(list)
    for job, number, started, ended, failed, lost, interval, timeout, tolerable, cause, exception in select(
        _RUNS, {"jobs": list(jobs), "since": since}
    ):
        numbers = (_number(interval), _number(timeout), _number(tolerable) or 0)
        found[job].append(RunFact(number, started, ended, failed, *numbers, _cause(exception) or cause, lost))
    return found


def _cause(exception: str | None) -> str:
    """Return the complete exception of a failed run as text, or an empty text."""
    return exception_text(json.loads(exception)) if exception else ""


def _number(text: str | None) -> int | None:
    """Return None for a negative number, and for Flink's largest interval, which means no periodic checkpoints."""
    value = int(float(text)) if text else -1
    return value if 0 <= value < 2**53 else None


def gather_ended_runs(query: FactQuery) -> Found:
    rows = select(_DEAD, {"since": query.since, "until": query.until, "jobs": list(query.jobs)})
    suspects = {*(job for (job,) in rows), *query.must}
    runs = runs_of(suspects, query.since)
    return {job: Facts(runs=runs.get(job, ())) for job in suspects}


def gather_restarts(query: FactQuery) -> Found:
    parameters = {"after": query.counted_from, "until": query.until, "jobs": list(query.jobs), "must": list(query.must)}
    return facts_of(query, by_job(select(_RESTARTS, parameters | {"least": query.least, "new_run": NEW_RUN})))
