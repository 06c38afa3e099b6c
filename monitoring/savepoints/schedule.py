"""The periodic savepoint of a job. `next_savepoint_at` is the truth; a tick that was lost is found again by it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from django.db import transaction

from monitoring import audit
from monitoring.models import Job, Run, RunState, Savepoint, SavepointOrigin, SavepointState
from monitoring.savepoints.request import SavepointDeferred, request_savepoint

SHORTEST_S = 30
LONGEST_S = 30 * 86_400
TRY_AGAIN = timedelta(seconds=30)


class BadInterval(ValueError):
    def __init__(self, value: object) -> None:
        super().__init__(
            f"savepoint_interval_s is {value!r}: a whole number of seconds from {SHORTEST_S} to {LONGEST_S} "
            "is needed, or nothing for no schedule."
        )
        self.field = "savepoint_interval_s"


@transaction.atomic
def set_interval(job: Job, interval_s: int | None, by: str, now: datetime) -> None:
    """Save every `interval_s` seconds from now on; None: no longer. Raises BadInterval."""
    if interval_s is not None and not (isinstance(interval_s, int) and SHORTEST_S <= interval_s <= LONGEST_S):
        raise BadInterval(interval_s)
    job.savepoint_interval_s = interval_s
    job.next_savepoint_at = None if interval_s is None else now + _interval(job)
    job.save(update_fields=["savepoint_interval_s", "next_savepoint_at"])
    audit.record(by, "savepoint.schedule", f"job {job.name}", "", interval_s=interval_s)


def request_due(now: datetime) -> Counter[str]:
    """Ask for every savepoint whose time has come; what cannot be now is deferred with its reason."""
    _set_first_times(now)
    due = Job.objects.filter(savepoint_interval_s__isnull=False, next_savepoint_at__lte=now)
    return Counter(
        outcome
        for job in due.select_related("cluster", "current_run").order_by("next_savepoint_at")
        if (outcome := _request(job, now))
    )


def _set_first_times(now: datetime) -> None:
    for job in Job.objects.filter(savepoint_interval_s__isnull=False, next_savepoint_at=None):
        Job.objects.filter(pk=job.pk, next_savepoint_at=None).update(next_savepoint_at=now + _interval(job))


@transaction.atomic
def _request(job: Job, now: datetime) -> str:
    if not _claim(job, now + _interval(job)):
        return ""
    run = job.current_run
    if run is None or RunState(run.state) in (RunState.CANCELED, RunState.FINISHED):
        return ""  # ended as somebody wished: there is nothing to save until it runs again
    try:
        request_savepoint(job, SavepointOrigin.SCHEDULED, audit.AUTOMATION, now)
    except SavepointDeferred as deferred:
        _defer(job, run, deferred.reason, now)
        return "deferred"
    return "requested"


def _claim(job: Job, next_at: datetime) -> int:
    """1 when this worker is the one that deals with the due time it saw."""
    return Job.objects.filter(pk=job.pk, next_savepoint_at=job.next_savepoint_at).update(next_savepoint_at=next_at)


def _defer(job: Job, run: Run, reason: str, now: datetime) -> None:
    soon = now + min(TRY_AGAIN, timedelta(seconds=job.savepoint_interval_s or SHORTEST_S))
    Job.objects.filter(pk=job.pk).update(next_savepoint_at=soon)
    Savepoint.objects.update_or_create(
        job=job,
        state=SavepointState.DEFERRED,
        defaults={"failure": reason},
        create_defaults={
            "failure": reason,
            "run": run,
            "origin": SavepointOrigin.SCHEDULED,
            "requested_by": audit.AUTOMATION,
            "requested_at": now,
        },
    )


def _interval(job: Job) -> timedelta:
    """A little longer for one job than for another, so that jobs scheduled together drift apart."""
    spread = (job.pk * 2_654_435_761 % 1000) / 1000 * 0.05
    return timedelta(seconds=(job.savepoint_interval_s or 0) * (1 + spread))
