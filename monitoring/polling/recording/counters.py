"""Store the engine's counters over time, and compute how much they grew in a time range."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.db import connection

from monitoring import bulk
from monitoring.models import Run
from monitoring.polling.observation import RunObservation

# If only completed checkpoints changed, samples are stored at most this often: each checkpoint has its own row anyway.
_THINNED_TO = timedelta(seconds=60)

# A sample is stored only if it has news: see CounterSample.
_RECORD = """
INSERT INTO monitoring_countersample (run_id, at, restored, total, in_progress, completed, failed)
SELECT seen.run_id, %(now)s, seen.restored, seen.total, seen.in_progress, seen.completed, seen.failed
FROM jsonb_to_recordset(%(rows)s::jsonb)
     AS seen (run_id bigint, restored bigint, total bigint, in_progress bigint, completed bigint, failed bigint)
LEFT JOIN LATERAL (
    SELECT * FROM monitoring_countersample WHERE run_id = seen.run_id ORDER BY at DESC LIMIT 1
) last ON TRUE
WHERE last.at IS NULL
   OR (seen.failed, seen.restored) <> (last.failed, last.restored)
   OR seen.total < last.total OR seen.completed < last.completed
   OR ((seen.total, seen.completed) <> (last.total, last.completed) AND last.at <= %(now)s - %(thinned_to)s)
ON CONFLICT (run_id, at) DO NOTHING
"""

# From the last sample before the time range to its end. A counter that fell was reset to zero.
_FAILED = """
SELECT job_id, sum(CASE WHEN failed >= before THEN failed - before ELSE failed END)
FROM (
    SELECT run.job_id, sample.failed, lag(sample.failed) OVER (PARTITION BY sample.run_id ORDER BY sample.at) AS before
    FROM monitoring_run run
    JOIN monitoring_countersample sample ON sample.run_id = run.id
    WHERE run.job_id = ANY(%(jobs)s) AND (run.ended_at IS NULL OR run.ended_at > %(since)s)
      AND sample.at <= %(until)s
      AND sample.at >= coalesce(
          (SELECT max(at) FROM monitoring_countersample WHERE run_id = run.id AND at <= %(since)s), %(since)s)
) steps
WHERE before IS NOT NULL
GROUP BY job_id
"""


def record(seen: Sequence[tuple[Run, RunObservation]], now: datetime) -> None:
    rows = [
        {"run_id": run.pk, **observed.checkpoints.counts.as_row()}
        for run, observed in seen
        if observed.checkpoints is not None and observed.checkpoints.counts.failed is not None
    ]
    if rows:
        bulk.read(_RECORD, rows, now=now, thinned_to=_THINNED_TO)


def failed_between(jobs: Collection[int], since: datetime, until: datetime) -> dict[int, int]:
    """Return, by job, how many checkpoints failed according to the engine's counters, including those without an ID.

    The numbers are correct over restarts and replaced job managers. Jobs without two samples are left out.
    """
    with connection.cursor() as cursor:
        cursor.execute(_FAILED, {"jobs": list(jobs), "since": since, "until": until})
        return {job: int(failed) for job, failed in cursor.fetchall()}
