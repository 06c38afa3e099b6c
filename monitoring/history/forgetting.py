"""Delete roll-ups that are not kept permanently: those of old minutes and hours."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection

from monitoring.history.catalogue import floor
from monitoring.history.pipeline.columns import DAY, MINUTES_KEPT_S, PROGRAM
from monitoring.models import CheckpointDeletion, RollupProgress
from monitoring.reasons.reason import Reason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason

# If the pipeline's job is restored from an older savepoint, it misses deleted checkpoints in its roll-ups.
DELETIONS_KEPT = timedelta(days=400)
# A chart of a month shows hours, and baselines need four weeks of hours.
HOURS_KEPT_DAYS = 45
_AT_ONCE = 50_000
_MINUTES = """
DELETE FROM {table} WHERE (job_id, seconds, start) IN (
    SELECT job_id, seconds, start FROM {table} WHERE seconds = 60 AND start < %s ORDER BY start LIMIT %s
)
"""
_HOURS = """
DELETE FROM {table} WHERE (job_id, seconds, start) IN (
    SELECT h.job_id, h.seconds, h.start FROM monitoring_job j
    JOIN {table} h ON h.job_id = j.id AND h.seconds = 3600 AND h.start < %s LIMIT %s
)
"""
_JOBS, _OPERATORS = (
    {"minutes": _MINUTES.format(table=table), "hours": _HOURS.format(table=table)}
    for table in ("monitoring_rollup", "monitoring_operatorrollup")
)
# Only if the pipeline's program can make a day without its hours. The value never decreases.
_HOURS_FROM = """
UPDATE monitoring_rollupprogress SET hours_from = greatest(hours_from, %s) WHERE program >= %s RETURNING hours_from
"""


def forget(now: datetime) -> CycleReport:
    """Delete some of the roll-ups of minutes older than three hours, and of hours older than `hours_kept`."""
    done: list[Reason] = []
    minutes_from = now - timedelta(seconds=MINUTES_KEPT_S)
    if minutes := _delete(_JOBS["minutes"], minutes_from):
        done.append(WorkReason.MINUTES_FORGOTTEN(count=minutes))
    _delete(_OPERATORS["minutes"], minutes_from)
    hours_from = _end_of_hours(now)
    if hours_from is not None:
        if hours := _delete(_JOBS["hours"], hours_from):
            done.append(WorkReason.HOURS_FORGOTTEN(before=hours_from, count=hours))
        _delete(_OPERATORS["hours"], hours_from)
    CheckpointDeletion.objects.filter(triggered_at__lt=now - DELETIONS_KEPT).delete()
    return CycleReport(tuple(done))


def hours_kept() -> timedelta:
    """Return how long roll-ups of hours are kept. Those of days are kept permanently."""
    before = RollupProgress.objects.values_list("hours_kept", flat=True).first()
    return settings.HOURS_KEPT or timedelta(days=before or HOURS_KEPT_DAYS)


def _end_of_hours(now: datetime) -> datetime | None:
    with connection.cursor() as cursor:
        cursor.execute(_HOURS_FROM, [floor(now, DAY) - hours_kept(), PROGRAM])
        found = cursor.fetchone()
    return found[0] if found else None


def _delete(statement: str, before: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, [before, _AT_ONCE])
        return int(cursor.rowcount)
