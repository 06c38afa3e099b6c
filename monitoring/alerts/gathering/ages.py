"""Who may have missed something for too long: judged in the database from two moments a job, before rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from monitoring.alerts.gathering.ask import Ask, select
from monitoring.alerts.kinds.ages import Age

# A run's limit: what the rules set, or what its configuration comes to (as no_completed_checkpoint.derived_limit_s).
# Without periodic checkpoints the interval is Flink's largest number.
LIMIT = """
least(%(set)s::float8, CASE WHEN %(derived)s
    AND (r.checkpoint_config ->> 'interval')::float8 BETWEEN 0 AND 9007199254740991 THEN
    greatest((r.checkpoint_config ->> 'interval')::float8,
             coalesce((r.checkpoint_config ->> 'timeout')::float8, 0)) / 1000
    * (greatest(coalesce((r.checkpoint_config ->> 'tolerable_failed_checkpoints')::float8, 0), 0) + 2) END)"""

# Suspected is who reaches the limit before the first event of the stretch, or may do so between two of it.
_SUSPECTS = """
SELECT job_id FROM ({marks}) marks(job_id, "limit", begun, first)
WHERE extract(epoch FROM coalesce(first, %(until)s::timestamptz) - begun) >= "limit"
   OR extract(epoch FROM %(until)s::timestamptz - %(since)s::timestamptz) >= "limit"
"""


def suspects(ask: Ask, marks: str, parameters: Mapping[str, Any]) -> set[int]:
    """The jobs that may reach a limit, and `ask.must`.

    `marks` is the statement of rows (job, limit in seconds, what the age counts from, first event of the stretch).
    """
    rows = select(_SUSPECTS.format(marks=marks), {**parameters, **_limits(ask)})
    return {*ask.must, *(job for (job,) in rows)}


def _limits(ask: Ask) -> dict[str, Any]:
    """The shortest that a rule sets, and whether one derives it from the job."""
    limits = [cast("Age", ask.kind).limit_without_run(terms) for terms in ask.terms]
    return {"set": min((limit for limit in limits if limit is not None), default=None), "derived": None in limits}
