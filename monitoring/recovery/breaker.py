"""The breaker of a job: open after too many restarts, until a person closes it."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from monitoring import audit
from monitoring.models import Job


def open_breaker(job: Job, why: str, now: datetime) -> bool:
    """False: it was open already."""
    opened = Job.objects.filter(pk=job.pk, breaker_opened_at=None).update(breaker_opened_at=now, breaker_reason=why)
    if opened:
        job.breaker_opened_at = now
        audit.record(audit.AUTOMATION, "restart.breaker-open", f"job {job.name}", why)
    return bool(opened)


@transaction.atomic
def close_breaker(job: Job, why: str, by: str, now: datetime) -> bool:
    """The job may be restarted again, with a fresh budget. False: it was closed already."""
    closed = Job.objects.filter(pk=job.pk, breaker_opened_at__isnull=False).update(
        breaker_opened_at=None, breaker_reason="", budget_since=now
    )
    if closed:
        audit.record(by, "restart.breaker-close", f"job {job.name}", why)
    return bool(closed)
