"""What of the roll-ups is not kept for good."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection

from monitoring.history.pipeline.columns import ARCHIVED, MINUTES_KEPT_S
from monitoring.models import CheckpointDeletion

# A savepoint of the pipeline's job that is older is followed by a wrong roll-up of hours that lost a checkpoint since.
DELETIONS_KEPT = timedelta(days=400)
_AT_ONCE = 50_000
_MINUTES = """
DELETE FROM monitoring_rollup WHERE (job_id, seconds, start) IN (
    SELECT job_id, seconds, start FROM monitoring_rollup WHERE seconds = 60 AND start < %s ORDER BY start LIMIT %s
)
"""
# Only where the checkpoints themselves are archived, so that the roll-up of the day is final.
_HOURS = f"""
DELETE FROM monitoring_rollup WHERE (job_id, seconds, start) IN (
    SELECT h.job_id, h.seconds, h.start FROM monitoring_job j
    JOIN monitoring_rollup h ON h.job_id = j.id AND h.seconds = 3600 AND h.start < %s
    WHERE {ARCHIVED.format(cluster="j.cluster_id", at="h.start")} LIMIT %s
)
"""  # noqa: S608 (constants only)


def forget(now: datetime) -> str:
    """Minutes that are over two days old and archived hours that are older than WAYMARK_HOURS_KEPT, some of them at a
    time; "" when there was nothing."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    gone = {
        "minutes": _delete(_MINUTES, now - timedelta(seconds=MINUTES_KEPT_S)),
        "hours": _delete(_HOURS, midnight - settings.HOURS_KEPT),
    }
    CheckpointDeletion.objects.filter(triggered_at__lt=now - DELETIONS_KEPT).delete()
    return " ".join(f"Roll-ups of {what} forgotten: {count:,}." for what, count in gone.items() if count)


def _delete(statement: str, before: datetime) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, [before, _AT_ONCE])
        return int(cursor.rowcount)
