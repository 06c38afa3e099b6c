"""Claims on savepoint rows: a worker claims a row by moving `next_check_at`, so that no other worker processes it.

A worker stores a result only if the row still has the state and the time of its claim.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import QuerySet

from monitoring.models import Savepoint
from monitoring.reasons.work import WorkReason

# Longer than the limit of an engine call, so that a claim never expires during one.
CLAIM = timedelta(seconds=60)
# The result of a step; None: nothing to report.
Outcome = WorkReason | None


def claim(savepoint: Savepoint, now: datetime, **values: object) -> int:
    """Claim the row for CLAIM; return 1 if this worker has it, else 0.

    `values` are stored with the claim, but not set on `savepoint`.
    """
    seen = ours(savepoint)
    savepoint.next_check_at = now + CLAIM
    return seen.update(next_check_at=savepoint.next_check_at, **values)


def update(savepoint: Savepoint, outcome: Outcome, **values: object) -> Outcome:
    """Store the values. Return `outcome`, or OVERTAKEN if this worker lost the claim and nothing was stored."""
    return outcome if ours(savepoint).update(**values) else WorkReason.OVERTAKEN


def ours(savepoint: Savepoint) -> QuerySet[Savepoint]:
    """Return the query for the row with the state and the time of `savepoint` in memory."""
    return Savepoint.objects.filter(pk=savepoint.pk, state=savepoint.state, next_check_at=savepoint.next_check_at)
