"""One worker at a time deals with a savepoint's row: claimed by moving `next_check_at`, which is also its guard.

What a worker learned is written only while the row has the state and the time that it claimed.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import QuerySet

from monitoring.models import Savepoint
from monitoring.reasons.work import WorkReason

# Longer than an engine call may take, so that a claim never ends under one.
CLAIM = timedelta(seconds=60)
# What came of a step; None: nothing worth saying.
Outcome = WorkReason | None


def claim(savepoint: Savepoint, now: datetime, **values: object) -> int:
    """1 when this worker is the one that has it, from now on for CLAIM. `values` are written with the claim; in memory
    the row keeps what it had."""
    seen = ours(savepoint)
    savepoint.next_check_at = now + CLAIM
    return seen.update(next_check_at=savepoint.next_check_at, **values)


def update(savepoint: Savepoint, outcome: Outcome, **values: object) -> Outcome:
    """`outcome` when the row was still ours, OVERTAKEN when it was not and nothing was written."""
    return outcome if ours(savepoint).update(**values) else WorkReason.OVERTAKEN


def ours(savepoint: Savepoint) -> QuerySet[Savepoint]:
    """The row, as it is in memory."""
    return Savepoint.objects.filter(pk=savepoint.pk, state=savepoint.state, next_check_at=savepoint.next_check_at)
