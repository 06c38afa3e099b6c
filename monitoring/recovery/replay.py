"""What going on from an older state would cost: the rows that the sources would read again.

Neither engine counts rows by checkpoint. What its sources have read since they were started, a second, is known while
it knows the job; times the age of the state that is about what would be read again.
"""

from __future__ import annotations

from datetime import datetime

from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine_calls import Call, call_all
from monitoring.models import Run

# Somebody waits for it in front of a page.
LIMIT_S = 5.0


def rows_a_second(run: Run) -> float | None:
    """What all sources of `run` together have read a second, on average; None when the engine does not know."""

    async def act(client: FlinkClient) -> list[tuple[int, int]]:
        sources = await client.source_rows(run.engine_job_id)
        return [(source.rows, source.duration) for source in sources]

    (answer,) = call_all([Call(run.job.cluster, act)], limit_s=LIMIT_S)
    if isinstance(answer, EngineError):
        return None
    rates = [rows * 1000 / milliseconds for rows, milliseconds in answer if rows > 0 and milliseconds > 0]
    return sum(rates) if rates else None


def replayed(run: Run, taken_at: datetime, now: datetime) -> int | None:
    """About how many rows, in two figures, came after a state that was taken then: until the run ended, or now."""
    rate = rows_a_second(run)
    seconds = max(0.0, ((run.ended_at or now) - taken_at).total_seconds())
    return None if rate is None else round(float(f"{rate * seconds:.2g}"))
