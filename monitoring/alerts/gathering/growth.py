"""Gather state sizes at full hours and 24 hours before them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

from monitoring.alerts.gathering.query import FactQuery, Found, select
from monitoring.alerts.kinds.state_growth import DAY, FRESH, hour_of, hours
from monitoring.alerts.rule_facts import Event, Facts

# The last checkpoint before each hour mark: one index look-up per mark and live run. Its age is checked afterwards: as
# a condition of the look-up, it would make PostgreSQL read and sort all checkpoints of the three hours.
_STANDING = """
SELECT DISTINCT ON (r.job_id, mark) r.job_id, last.latest_ack_at, last.state_size, last.checkpoint_id, last.id
FROM unnest(%(marks)s::timestamptz[]) AS mark CROSS JOIN monitoring_run r CROSS JOIN LATERAL (
    SELECT c.latest_ack_at, c.state_size, c.checkpoint_id, c.id, c.triggered_at FROM monitoring_checkpoint c
    WHERE c.run_id = r.id AND c.status = 'COMPLETED' AND NOT c.is_savepoint AND c.state_size IS NOT NULL
      AND c.latest_ack_at <= mark AND c.triggered_at <= mark
    ORDER BY c.triggered_at DESC LIMIT 1
) last
WHERE r.job_id = ANY(%(jobs)s) AND last.triggered_at > mark - %(fresh)s AND r.started_at <= mark
  AND (r.ended_at IS NULL OR r.ended_at > mark - %(fresh)s)
ORDER BY r.job_id, mark, last.latest_ack_at DESC
"""


def gather_hourly_sizes(query: FactQuery) -> Found:
    """Gather sizes of jobs that may have grown by a threshold.

    A smaller state cannot have grown by the threshold, so for most jobs only the hours of the time range are read.
    """
    looked_at = {hour_of(query.until), *hours(query.since, query.until)}
    large = [job for job, events in _standing(query.jobs, looked_at).items() if max(_sizes(events)) >= query.least]
    found = _standing(large, _with_day_before(looked_at))
    needed = {
        *query.must,
        *(job for job, events in found.items() if max(_sizes(events)) - min(_sizes(events)) >= query.least),
    }
    found = _standing(needed, _with_day_before({hour_of(query.since), *looked_at}))
    return {job: Facts(events=sorted(found.get(job, ()))) for job in needed}


def _standing(jobs: Collection[int], marks: Collection[datetime]) -> dict[int, set[Event]]:
    found: dict[int, set[Event]] = defaultdict(set)
    if jobs:
        parameters = {"marks": sorted(marks), "jobs": list(jobs), "fresh": FRESH}
        for job, at, size, number, row in select(_STANDING, parameters):
            found[job].add(Event(at, float(size), number, row))
    return found


def _with_day_before(marks: Collection[datetime]) -> set[datetime]:
    return {each for mark in marks for each in (mark, mark - DAY)}


def _sizes(events: Collection[Event]) -> list[float]:
    return [event.value for event in events]
