"""Notify people that a job is down and will not be restarted automatically, and when it runs again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from monitoring import audit
from monitoring.alerts.incidents import change_incident, open_incident, resolve_incident
from monitoring.models import (
    AttemptState,
    Incident,
    IncidentKind,
    IncidentState,
    Job,
    RestartAttempt,
    RestartTrigger,
    RunState,
    Severity,
)
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why

# The job runs, or had an intended end.
CLEAR = (RunState.RUNNING, RunState.FINISHED, RunState.CANCELED)
# A poll that was in progress when a job was stopped may still report that it runs.
POLLED_BEFORE = timedelta(seconds=30)


@transaction.atomic
def report_not_restarted(job: Job, sentence: Reason, evidence: Mapping[str, object], now: datetime) -> bool:
    """Open the job's incident, or change its finding. Return False if the incident already has this finding."""
    Job.objects.select_for_update().get(pk=job.pk)  # so that two workers open only one incident
    incident = _open_incidents().filter(job=job).first()
    if incident is not None and incident.sentence_value == sentence:
        return False
    if incident is None:
        open_incident(job, None, IncidentKind.NOT_RESTARTED, Severity.CRITICAL, sentence, evidence, now)
    else:
        change_incident(incident, sentence, evidence, now)
    Job.objects.filter(pk=job.pk, automation_paused=False).update(**columns("automation_note", sentence))
    audit.record(audit.AUTOMATION, "restart.needs-person", f"job {job.name}", sentence)
    return True


def resolve_recovered(now: datetime) -> int:
    """Resolve the incidents of jobs that are no longer dead; return how many."""
    cleared = (
        _open_incidents()
        .filter(~Exists(_left_down()), job__current_run__state__in=CLEAR)
        .select_related("job__current_run")
    )
    return sum(_clear(incident, now) for incident in cleared)


def _left_down() -> QuerySet[RestartAttempt]:
    """Return failed manual restarts that stopped an incident's job, so that its end was not intended.

    A run that a later poll reports as RUNNING is left out.
    """
    runs_on = Q(old_run__state=RunState.RUNNING, old_run__observed_at__gt=F("ended_at") + POLLED_BEFORE)
    return RestartAttempt.objects.filter(
        ~runs_on,
        job=OuterRef("job"),
        old_run=OuterRef("job__current_run"),
        trigger=RestartTrigger.MANUAL,
        state=AttemptState.FAILED,
        ended_at__gte=OuterRef("opened_at"),
    )


@transaction.atomic
def _clear(incident: Incident, now: datetime) -> bool:
    job = incident.job
    if job is None:
        return False
    run = job.current_run
    evidence = {"state": run.state if run else ""}
    why = Why.JOB_IS(state=run.state) if run else Why.JOB_IS_BACK()
    resolved = resolve_incident(incident, why, evidence, now)
    by_us = Job.objects.filter(pk=job.pk, automation_note_value=incident.sentence_value)
    by_us.update(automation_note="", automation_note_value=None)
    return resolved


def _open_incidents() -> QuerySet[Incident]:
    return Incident.objects.filter(kind=IncidentKind.NOT_RESTARTED).exclude(state=IncidentState.RESOLVED)
