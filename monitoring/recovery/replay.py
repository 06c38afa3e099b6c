"""Estimate the rows that the sources would read again if a job were restored from an older snapshot.

Neither engine counts rows per checkpoint. While an engine knows the job, it reports the rows per second that the
sources have read since their start. The estimate is that rate times the age of the snapshot.
"""

from __future__ import annotations

from datetime import datetime

from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine_calls import Call, call_all
from monitoring.models import Run

# A page waits for the answer.
LIMIT_S = 5.0


def rows_a_second(run: Run) -> float | None:
    """Return the average rows per second of all sources of `run` together, or None if the engine does not know."""

    async def act(client: FlinkClient) -> list[tuple[int, int]]:
        sources = await client.source_rows(run.engine_job_id)
        return [(source.rows, source.duration) for source in sources]

    (answer,) = call_all([Call(run.job.cluster, act)], limit_s=LIMIT_S)
    if isinstance(answer, EngineError):
        return None
    rates = [rows * 1000 / milliseconds for rows, milliseconds in answer if rows > 0 and milliseconds > 0]
    return sum(rates) if rates else None


def replayed(run: Run, taken_at: datetime, now: datetime) -> int | None:
    """Estimate, to two digits, the rows that came after a snapshot of that time, until the run ended or `now`."""
    rate = rows_a_second(run)
    seconds = max(0.0, ((run.ended_at or now) - taken_at).total_seconds())
    return None if rate is None else round(float(f"{rate * seconds:.2g}"))
