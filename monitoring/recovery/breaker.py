"""The breaker of a job: it opens after too many restarts and stays open until a person closes it."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from monitoring import audit
from monitoring.models import Job
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason


def open_breaker(job: Job, why: Reason, now: datetime) -> bool:
    """Open the job's breaker; return False if it was already open."""
    closed = Job.objects.filter(pk=job.pk, breaker_opened_at=None)
    opened = closed.update(breaker_opened_at=now, **columns("breaker_reason", why))
    if opened:
        job.breaker_opened_at = now
        audit.record(audit.AUTOMATION, "restart.breaker-open", f"job {job.name}", why)
    return bool(opened)


@transaction.atomic
def close_breaker(job: Job, why: str, by: str, now: datetime) -> bool:
    """Close the job's breaker and give the job a new restart budget; return False if it was already closed."""
    closed = Job.objects.filter(pk=job.pk, breaker_opened_at__isnull=False).update(
        breaker_opened_at=None, breaker_reason="", breaker_reason_value=None, budget_since=now
    )
    if closed:
        audit.record(by, "restart.breaker-close", f"job {job.name}", why)
    return bool(closed)
