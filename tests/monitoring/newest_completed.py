"""Compare the stored newest completed checkpoints with the checkpoints themselves."""

from __future__ import annotations

from django.db import connection

_DIFFERENT = """
SELECT run_id FROM (
    SELECT DISTINCT ON (run_id) run_id, checkpoint_id, triggered_at, latest_ack_at, end_to_end_duration, state_size
    FROM monitoring_checkpoint WHERE status = 'COMPLETED' AND NOT is_savepoint ORDER BY run_id, triggered_at DESC
) found
FULL JOIN monitoring_newestcompleted stored USING (run_id)
WHERE (found.checkpoint_id, found.triggered_at, found.latest_ack_at, found.end_to_end_duration, found.state_size)
    IS DISTINCT FROM
    (stored.checkpoint_id, stored.triggered_at, stored.latest_ack_at, stored.end_to_end_duration, stored.state_size)
"""


def outdated() -> list[int]:
    """Return the keys of the runs whose stored newest completed checkpoint is not the newest one."""
    with connection.cursor() as cursor:
        cursor.execute(_DIFFERENT)
        return [key for (key,) in cursor.fetchall()]
