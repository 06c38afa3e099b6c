"""What of the roll-ups is not kept for good."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection

from monitoring.history.pipeline.columns import MINUTES_KEPT_S
from monitoring.models import CheckpointDeletion

# A savepoint of the pipeline's job that is older is followed by a wrong roll-up of hours that lost a checkpoint since.
DELETIONS_KEPT = timedelta(days=400)
_AT_ONCE = 50_000
_MINUTES = """
DELETE FROM monitoring_rollup WHERE (job_id, seconds, start) IN (
    SELECT job_id, seconds, start FROM monitoring_rollup WHERE seconds = 60 AND start < %s ORDER BY start LIMIT %s
)
"""


def forget(now: datetime) -> str:
    """Minutes that are over two days old, some of them at a time; "" when there was nothing."""
    with connection.cursor() as cursor:
        cursor.execute(_MINUTES, [now - timedelta(seconds=MINUTES_KEPT_S), _AT_ONCE])
        minutes = cursor.rowcount
    CheckpointDeletion.objects.filter(triggered_at__lt=now - DELETIONS_KEPT).delete()
    return f"Roll-ups of minutes forgotten: {minutes:,}." if minutes else ""
