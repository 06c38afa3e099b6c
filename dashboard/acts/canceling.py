"""Cancel a job: the engine ends it at once, without a savepoint. Later polls find that the job has ended."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from dashboard.acts.intents import Intent
from dashboard.acts.shown import ShownRun, check_shown_run
from dashboard.audit_texts import actor_name
from dashboard.language import rendered
from monitoring import audit
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Unreachable
from monitoring.engine_calls import Call, call_all
from monitoring.kubernetes.job_resources import JobResource, resource_of
from monitoring.models import AttemptState, AuditEntry, Job, Run, RunState
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.request import IN_FLIGHT
from monitoring.units import age_text

_OPEN = [state.value for state in AttemptState if state.open]


class NotCanceled(Exception):
    """The job was not canceled and keeps running. The message gives the reason."""


class CancelUnknown(Exception):
    """The cancel request was sent, but the engine did not respond. The outcome is unknown."""


def cancel_job(job: Job, by: str, reason: str, intent: Intent, shown: ShownRun | None = None) -> Run:
    """Send the engine a request to cancel the job's current run, and return this run.

    A repeated call concerns the run of the first call. It sends no request if this run has ended or is being canceled.

    Raises:
        NotCanceled: the engine refused, the job has no active run, or a restart, savepoint or cancellation of it is in
            progress.
        CancelUnknown: the engine did not respond.
        JobChanged: the job's current run is not the run that the caller saw.
    """
    if (earlier := _find_earlier_run(job, intent)) is not None:
        return earlier
    if why := job.cluster.why_not_controlled:
        raise NotCanceled(_("%(reason)s.") % {"reason": rendered(why)})
    if (resource := resource_of(job)) is not None:
        stop_there = SavepointReason.OPERATOR_STOPS(resource=str(JobResource.of(resource)))
        raise NotCanceled(_("%(reason)s.") % {"reason": capfirst(rendered(stop_there))})
    check_shown_run(job, shown, timezone.now())
    run = _require_active_run(job)
    if shown is not None:
        _require_first_cancel(job, run)
    if not job.cluster.reachable:
        raise NotCanceled(_("The cluster does not answer."))
    if attempt := job.restart_attempts.filter(state__in=_OPEN).first():
        raise NotCanceled(
            _("Restart %(epoch)s is in progress. Cancel the restart, or wait until it ends.") % {"epoch": attempt.epoch}
        )
    if job.savepoints.filter(state__in=IN_FLIGHT).exists():
        raise NotCanceled(_("A savepoint is in progress. Wait until it ends."))
    # Write the entry before the request, so that after a crash the audit log shows that it may have been sent.
    audit.record(by, "job.cancel", f"job {job.name}", reason, run=run.number, engine_job_id=run.engine_job_id)
    intent.commit(run=run.pk)
    _send_cancel(job, run, by)
    return run


def _find_earlier_run(job: Job, intent: Intent) -> Run | None:
    run = job.runs.filter(pk=intent.earlier["run"]).first() if intent.earlier else None
    ends = run is not None and (run.pk != job.current_run_id or not run.live or run.state == RunState.CANCELLING)
    return run if ends else None


def _require_active_run(job: Job) -> Run:
    run = job.current_run
    if run is None:
        raise NotCanceled(_("The job has never run."))
    if not run.live or run.state == RunState.CANCELLING:
        raise NotCanceled(_("The job is already %(state)s.") % {"state": run.state})
    return run


def _require_first_cancel(job: Job, run: Run) -> None:
    """Refuse a second request while Waymark has not polled the run after the first one."""
    accepted = AuditEntry.objects.filter(action="job.cancel-taken", target=f"job {job.name}", details__run=run.number)
    if (first := accepted.filter(at__gt=run.observed_at).first()) is not None:
        who, age = actor_name(first.actor), age_text(timezone.now() - first.at)
        text = _("%(who)s canceled run %(number)s %(age)s ago, and the cluster accepted the request.")
        raise NotCanceled(text % {"who": who, "number": run.number, "age": age})


def _send_cancel(job: Job, run: Run, by: str) -> None:
    async def act(client: FlinkClient) -> None:
        await client.cancel(run.engine_job_id)

    (answer,) = call_all([Call(job.cluster, act)])
    if not isinstance(answer, EngineError):
        with transaction.atomic():
            Run.objects.filter(pk=run.pk).update(cancel_accepted_at=timezone.now())
            audit.record(by, "job.cancel-taken", f"job {job.name}", "", run=run.number)
        return
    audit.record(by, "job.not-canceled", f"job {job.name}", "", run=run.number, why=str(answer))
    if isinstance(answer, Unreachable):
        why = _("%(error)s Waymark does not know whether the job was canceled.")
        raise CancelUnknown(why % {"error": rendered(answer.reason)}) from answer
    raise NotCanceled(_("%(error)s The job keeps running.") % {"error": rendered(answer.reason)}) from answer
