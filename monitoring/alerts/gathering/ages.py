"""Select in SQL, from two times per job, the jobs that may have missed something for too long, before rows are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from monitoring.alerts.gathering.query import FactQuery, select
from monitoring.alerts.kinds.ages import Age
from monitoring.alerts.kinds.no_completed_checkpoint import CAP_PERIODS, LEAST_CAP_S

# Parts of a run's limit: the longer of its interval and timeout in seconds, and its tolerable failures.
_PERIOD_S = """(greatest((r.checkpoint_config ->> 'interval')::float8,
    coalesce((r.checkpoint_config ->> 'timeout')::float8, 0)) / 1000)"""

_TOLERABLE = "greatest(coalesce((r.checkpoint_config ->> 'tolerable_failed_checkpoints')::float8, 0), 0)"

# A run's limit in seconds: the rules set it, or it is derived from the run's configuration as in
# no_completed_checkpoint.derived_limit_s. Without periodic checkpoints, Flink's interval is its largest number.
LIMIT = f"""
least(%(set)s::float8, CASE WHEN %(derived)s
    AND (r.checkpoint_config ->> 'interval')::float8 BETWEEN 0 AND 9007199254740991 THEN
    least({_PERIOD_S} * ({_TOLERABLE} + 2), greatest({_PERIOD_S} * {CAP_PERIODS}, {LEAST_CAP_S})) END)"""

# A job is a suspect if its age reaches the limit before the first event of the time range. It is also one if the range
# is longer than the limit, because the age may reach the limit between two events.
_SUSPECTS = """
SELECT job_id FROM ({marks}) marks(job_id, "limit", begun, first)
WHERE extract(epoch FROM coalesce(first, %(until)s::timestamptz) - begun) >= "limit"
   OR extract(epoch FROM %(until)s::timestamptz - %(since)s::timestamptz) >= "limit"
"""


def suspects(query: FactQuery, marks: str, parameters: Mapping[str, Any]) -> set[int]:
    """Return the jobs whose age may reach a limit, and `query.must`.

    `marks` is a statement that returns rows (job, limit in seconds, start of the age, first event of the time range).
    """
    rows = select(_SUSPECTS.format(marks=marks), {**parameters, **_limits(query)})
    return {*query.must, *(job for (job,) in rows)}


def _limits(query: FactQuery) -> dict[str, Any]:
    """Return the shortest limit that a rule sets, and whether a rule derives its limit from the job."""
    limits = [cast("Age", query.kind).limit_without_run(terms) for terms in query.terms]
    return {"set": min((limit for limit in limits if limit is not None), default=None), "derived": None in limits}
