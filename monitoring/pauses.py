"""Pauses of the automation. The automation checks the rows right before it acts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import Q, QuerySet

from monitoring import audit
from monitoring.models import AutomationPause, Cluster, Job
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason, ReasonCode

LONGEST_REASON = 500


class BadPause(ValueError):
    """Raised for an invalid pause, with the field and what is allowed."""

    def __init__(self, field: str, allowed: Reason) -> None:
        super().__init__(f"{field}: {allowed}")
        self.field = field
        self.allowed = allowed


def active(now: datetime) -> QuerySet[AutomationPause]:
    lasting = Q(until=None) | Q(until__gt=now)
    return AutomationPause.objects.filter(lasting, ended_at=None, started_at__lte=now).select_related("cluster")


def pause_reason(job: Job, now: datetime, pauses: Collection[AutomationPause] | None = None) -> Reason | None:
    """Return why the job's automation is paused, or None. `pauses`: the active pauses, if the caller has read them."""
    if job.managed_elsewhere:
        return AutomationReason.MANAGED_ELSEWHERE(who=job.managed_elsewhere)
    if job.automation_paused and _lasts(job, now):
        return _paused(AutomationReason.PAUSED, AutomationReason.PAUSED_UNTIL, job.automation_paused_until)
    found = active(now) if pauses is None else pauses
    pause = next((each for each in found if each.cluster_id in (None, job.cluster_id)), None)
    if pause is None:
        return None
    by = {"who": pause.author, "reason": pause.reason.rstrip(".")}
    if pause.cluster is None:
        return _paused(AutomationReason.ALL_PAUSED, AutomationReason.ALL_PAUSED_UNTIL, pause.until, **by)
    by["cluster"] = str(pause.cluster)
    return _paused(AutomationReason.CLUSTER_PAUSED, AutomationReason.CLUSTER_PAUSED_UNTIL, pause.until, **by)


def _paused(for_good: ReasonCode, for_a_while: ReasonCode, until: datetime | None, **args: str) -> Reason:
    return for_good(**args) if until is None else for_a_while(until=until, **args)


def _lasts(job: Job, now: datetime) -> bool:
    return job.automation_paused_until is None or job.automation_paused_until > now


def end_of_jobs(now: datetime) -> list[str]:
    """End expired pauses of single jobs, each once, and return the jobs' names."""
    over = Job.objects.filter(automation_paused=True, automation_paused_until__lte=now)
    return [job.name for job in over if _end_of(job)]


@transaction.atomic
def _end_of(job: Job) -> bool:
    same = Job.objects.filter(pk=job.pk, automation_paused=True, automation_paused_until=job.automation_paused_until)
    ended = same.update(
        automation_paused=False, automation_paused_until=None, automation_note="", automation_note_value=None
    )
    if ended:
        audit.record(audit.AUTOMATION, "automation.resume", f"job {job.name}", stored(job, "automation_note"))
    return bool(ended)


@transaction.atomic
def pause(cluster: Cluster | None, reason: str, until: datetime | None, by: str, now: datetime) -> AutomationPause:
    """Pause the automation of the cluster, or of everything. Raises BadPause."""
    reason = reason.strip()
    if not reason:
        raise BadPause("reason", AutomationReason.WHY_NEEDED())
    if len(reason) > LONGEST_REASON:
        raise BadPause("reason", AutomationReason.WHY_TOO_LONG(most=LONGEST_REASON, count=len(reason)))
    if until is not None and until <= now:
        raise BadPause("until", AutomationReason.LATER_END_NEEDED())
    made = AutomationPause.objects.create(cluster=cluster, reason=reason, author=by, started_at=now, until=until)
    audit.record(by, "automation.pause", _target(made), reason, until=until.isoformat() if until else None)
    return made


@transaction.atomic
def end(found: AutomationPause, by: str, now: datetime) -> bool:
    """End the pause; return False if it had already ended."""
    ended = active(now).filter(pk=found.pk).update(ended_at=now, ended_by=by)
    if ended:
        audit.record(by, "automation.resume", _target(found), found.reason)
    return bool(ended)


def _target(pause: AutomationPause) -> str:
    return f"cluster {pause.cluster}" if pause.cluster else "everything"
