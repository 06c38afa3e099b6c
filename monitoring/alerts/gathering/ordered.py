"""Leave out checkpoints that were aborted because a person or Waymark ordered the job to stop or to restart.

An order is a restart attempt that replaces the run, a savepoint that stops it, or a cancellation in the audit log. Each
is stored before the engine gets the request, so it is known before the aborted checkpoint is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from monitoring.alerts.failure_reason import CheckpointFailureReason, reason_of
from monitoring.alerts.gathering.query import select
from monitoring.alerts.rule_facts import Interval

# The reasons for which the engine aborts a checkpoint that is in progress when the job stops or restarts.
ABORTED = (
    CheckpointFailureReason.COORDINATOR_SUSPEND,
    CheckpointFailureReason.COORDINATOR_SHUTDOWN,
    CheckpointFailureReason.FAILOVER_REGION,
    CheckpointFailureReason.SUBSUMED,
)

# The time of each requested restart, stop or cancellation, by run. Without an end, it is in progress, or the run ended
# with it. The engine's clock may be 5 s behind. An automatic restart begins after the run failed, so earlier failures
# are not due to it.
# A savepoint that failed lets the run continue, as may a cancellation that the engine refused.
_ORDERS = """
SELECT old_run_id, CASE WHEN trigger = 'automatic' THEN created_at ELSE created_at - interval '5 s' END,
       ended_at + interval '5 s'
FROM monitoring_restartattempt WHERE old_run_id = ANY(%(runs)s)
UNION ALL
SELECT run_id, requested_at - interval '5 s',
       CASE WHEN state = 'failed' THEN coalesce(completed_at, deadline_at, requested_at + interval '10 min') END
FROM monitoring_savepoint WHERE stops_job AND run_id = ANY(%(runs)s)
UNION ALL
SELECT r.id, e.at - interval '5 s', e.at + interval '10 min'
FROM monitoring_run r JOIN monitoring_job j ON j.id = r.job_id
JOIN monitoring_auditentry e ON e.target = left('job ' || j.name, 600)
WHERE r.id = ANY(%(runs)s) AND e.action = 'job.cancel' AND e.details ->> 'engine_job_id' = r.engine_job_id
"""


def without_ordered_aborts(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Leave out checkpoints that a requested restart, stop or cancellation aborted.

    A row is (job, at, 1 if the checkpoint failed, number, row, message, run). Return the other rows without their run.
    """
    orders = _orders_of({row[-1] for row in rows if _was_aborted(row)})
    return [
        row[:-1]
        for row in rows
        if not (_was_aborted(row) and any(order.covers(row[1]) for order in orders.get(row[-1], ())))
    ]


def _was_aborted(row: tuple[Any, ...]) -> bool:
    return bool(row[2]) and reason_of(row[5] or "") in ABORTED


def _orders_of(runs: Collection[int]) -> dict[int, list[Interval]]:
    found: dict[int, list[Interval]] = defaultdict(list)
    if runs:
        for run, began, ended in select(_ORDERS, {"runs": list(runs)}):
            found[run].append(Interval(began, ended))
    return found
