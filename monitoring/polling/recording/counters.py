"""Store the engine's counters over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

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


def record(seen: Sequence[tuple[Run, RunObservation]], now: datetime) -> None:
    rows = [
        {"run_id": run.pk, **observed.checkpoints.counts.as_row()}
        for run, observed in seen
        if observed.checkpoints is not None and observed.checkpoints.counts.failed is not None
    ]
    if rows:
        bulk.read(_RECORD, rows, now=now, thinned_to=_THINNED_TO)
