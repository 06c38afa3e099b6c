"""The row of a restart attempt: its creation, its steps on the page, and its end.

There is one attempt per (job, epoch). The process that increments the job's epoch by compare-and-set owns the restart.
If two processes decide about the same failure, or a person and the automation, one wins. The other gets AttemptOpen.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils.translation import gettext_noop as _

from checkpointing.ids import new_id
from monitoring import audit
from monitoring.kubernetes.job_resources import JobResource
from monitoring.models import (
    AttemptState,
    Job,
    RestartAttempt,
    RestartStep,
    RestartTrigger,
    Run,
    Savepoint,
    StepState,
)
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why

TIME_LIMIT = timedelta(minutes=10)
_OPEN = {
    RestartTrigger.AUTOMATIC: Why.OPEN_AUTOMATIC,
    RestartTrigger.MANUAL: Why.OPEN_MANUAL,
    RestartTrigger.AGAIN: Why.OPEN_AGAIN,
    RestartTrigger.SCHEDULED: Why.OPEN_SCHEDULED,
}


class AttemptOpen(Exception):
    """Another restart of the job is in progress, or was decided at the same time. `attempt` is that restart."""

    def __init__(self, job: Job) -> None:
        self.attempt = attempt = RestartAttempt.objects.filter(job=job).order_by("-epoch").first()
        if attempt is None:
            self.reason = Why.OPEN_UNKNOWN(job=job.name)
        else:
            self.reason = _OPEN[RestartTrigger(attempt.trigger)](job=job.name, epoch=attempt.epoch)
        super().__init__(str(self.reason))


def open_attempt(
    job: Job,
    trigger: RestartTrigger,
    reason: Reason,
    by: str,
    now: datetime,
    *,
    restore_path: str = "",
    restore_is_savepoint: bool | None = None,
    restore_state_at: datetime | None = None,
    savepoint: Savepoint | None = None,
    stop_first: bool = False,
    from_stop: bool = False,
    start_empty: bool = False,
    launch: dict[str, object] | None = None,
    goes_back: bool = False,
    imports: dict[str, str] | None = None,
    resource: JobResource | None = None,
) -> RestartAttempt:
    """Decide a restart of `job`, through its operator if `resource` is given. Raise AttemptOpen.

    The stored epoch and current run must equal those of `job` in memory, on which the caller based the decision.
    """
    try:
        with transaction.atomic():
            claimed = Job.objects.filter(pk=job.pk, epoch=job.epoch, current_run=job.current_run_id).update(
                epoch=job.epoch + 1
            )
            if not claimed:
                raise AttemptOpen(job)
            attempt = RestartAttempt.objects.create(
                job=job,
                epoch=job.epoch + 1,
                trigger=trigger,
                requested_by=by,
                old_run=job.current_run,
                engine_job_id=_engine_job_id(job),
                restore_path=restore_path,
                restore_is_savepoint=restore_is_savepoint,
                restore_state_at=restore_state_at,
                savepoint=savepoint,
                stop_first=stop_first,
                from_stop=from_stop,
                start_empty=start_empty,
                launch=launch,
                goes_back=goes_back,
                imports=imports or {},
                resource=resource.as_json() if resource else None,
                created_at=now,
                deadline_at=now + TIME_LIMIT,
                next_step_at=now,
                **columns("reason", reason),
            )
            _show_decision(attempt, now)
            audit.record(by, "restart.decide", f"job {job.name}", reason, attempt=attempt.pk, epoch=attempt.epoch)
    except IntegrityError as error:
        raise AttemptOpen(job) from error
    job.epoch += 1
    return attempt


def _show_decision(attempt: RestartAttempt, now: datetime) -> None:
    """Store a step for the decision. An automatic restart also gets one for the detection of the failure."""
    run, begun = attempt.old_run, now
    if attempt.trigger == RestartTrigger.AUTOMATIC and run is not None and run.ended_at and run.end_seen_at:
        begun = min(run.end_seen_at, now)
        died_at = min(run.ended_at, begun)  # ended_at is by the engine's clock, end_seen_at by Waymark's
        _done(attempt, _("Detect the failure"), Why.RUN_ENDED(run=run.number, at=died_at), died_at, begun)
    _done(attempt, _("Decide"), stored(attempt, "reason"), begun, now)


def _done(attempt: RestartAttempt, name: str, text: Reason | str, started_at: datetime, ended_at: datetime) -> None:
    RestartStep.objects.create(
        attempt=attempt,
        name=name,
        state=StepState.DONE,
        started_at=started_at,
        ended_at=ended_at,
        **columns("text", text),
    )


def end(attempt: RestartAttempt, state: AttemptState, why: Reason, now: datetime) -> None:
    """End the attempt. `why` is the error unless it SUCCEEDED. The caller has the transaction and the claim."""
    error = columns("error", "" if state is AttemptState.SUCCEEDED else why)
    RestartAttempt.objects.filter(pk=attempt.pk).update(
        state=state, ended_at=now, next_step_at=None, claimed_until=None, **error
    )
    audit.record(audit.AUTOMATION, f"restart.{state.value}", f"job {attempt.job.name}", why, attempt=attempt.pk)


def show_step(attempt: RestartAttempt, name: str, state: StepState, text: Reason | str, now: datetime) -> None:
    """Update the newest step if it has this name and is in progress, else add a step.

    An added step begins at the end of the step before it.
    """
    ended_at = None if state is StepState.RUNNING else now
    shown = columns("text", text)
    last = attempt.steps.order_by("id").last()
    if last is not None and last.name == name and last.ended_at is None:
        RestartStep.objects.filter(pk=last.pk).update(state=state, ended_at=ended_at, **shown)
        return
    started_at = min(now, last.ended_at) if last is not None and last.ended_at is not None else now
    RestartStep.objects.create(
        attempt=attempt, name=name, state=state, started_at=started_at, ended_at=ended_at, **shown
    )


def _engine_job_id(job: Job) -> str:
    """Return a new ID, or the last one if its launch may still succeed: the engine refuses a second job with it."""
    last = RestartAttempt.objects.filter(job=job).order_by("-epoch").first()
    unresolved = (
        last is not None
        and last.launch_sent_at is not None
        and last.launched_at is None
        and not Run.objects.filter(job=job, engine_job_id=last.engine_job_id).exists()
    )
    return last.engine_job_id if last is not None and unresolved else new_id()
