"""State sizes on the hour, a day apart."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from monitoring.alerts.facts import Event, Facts
from monitoring.alerts.gathering.ask import Ask, Found, select
from monitoring.alerts.kinds.state_growth import DAY, FRESH, hour_of, hours

# What stood at each hour mark: one index look-up per mark and live run.
_STANDING = """
SELECT DISTINCT ON (r.job_id, mark) r.job_id, last.latest_ack_at, last.state_size, last.checkpoint_id, last.id
FROM unnest(%(marks)s::timestamptz[]) AS mark CROSS JOIN monitoring_run r CROSS JOIN LATERAL (
    SELECT c.latest_ack_at, c.state_size, c.checkpoint_id, c.id FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.state_size IS NOT NULL
      AND c.latest_ack_at <= mark AND c.triggered_at <= mark AND c.triggered_at > mark - %(fresh)s
    ORDER BY c.triggered_at DESC LIMIT 1
) last
WHERE r.job_id = ANY(%(jobs)s) AND r.started_at <= mark AND (r.ended_at IS NULL OR r.ended_at > mark - %(fresh)s)
ORDER BY r.job_id, mark, last.latest_ack_at DESC
"""


def gather_hourly_sizes(ask: Ask) -> Found:
    marks = _marks(ask.since, ask.until)
    jobs = list(ask.jobs)
    found: dict[int, set[Event]] = defaultdict(set)
    for job, at, size, number, row in select(_STANDING, {"marks": marks, "jobs": jobs, "fresh": FRESH}):
        found[job].add(Event(at, float(size), number, row))
    moved = {job for job, events in found.items() if _spread(events) >= ask.least}
    return {job: Facts(events=sorted(found.get(job, ()))) for job in {*moved, *ask.must}}


def _marks(since: datetime, until: datetime) -> list[datetime]:
    """The hours that the stretch looks at, the one that stands at its beginning and end included, and a day before."""
    looked_at = {hour_of(since), hour_of(until), *hours(since, until)}
    return sorted({mark for hour in looked_at for mark in (hour, hour - DAY)})


def _spread(events: set[Event]) -> float:
    sizes = [event.value for event in events]
    return max(sizes) - min(sizes)
