"""Start jobs that end by themselves again at the times of a cron expression.

`next_run_at` is the source of truth, so a lost tick loses no run. If Waymark was down at one or more due times, it
starts one run at once. A due time at which the last run has not ended is skipped.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from monitoring import audit
from monitoring.models import Job, RestartTrigger
from monitoring.pauses import pause_reason
from monitoring.reasons.columns import columns, stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.manual import ClusterSilent
from monitoring.recovery.run_again import AttemptOpen, BadLaunch, RestartRefused, run_again
from monitoring.savepoints.schedule import next_time
from monitoring.savepoints.timetable import Cron


def run_timetable(job: Job) -> Cron | None:
    """Return the job's schedule of runs, or None if it has none. Raises BadSchedule."""
    return Cron(job.run_cron, job.run_time_zone) if job.run_cron else None


@transaction.atomic
def set_run_schedule(job: Job, timetable: Cron | None, by: str, now: datetime) -> None:
    """Run the job at these times from now on; None: only when a person requests it."""
    job.run_cron = timetable.expression if timetable else ""
    job.run_time_zone = timetable.zone if timetable else "UTC"
    job.run_cron_since = now if timetable else None
    job.next_run_at = next_time(job, run_timetable, now)
    job.run_problem, job.run_problem_value = "", None
    job.save(
        update_fields=["run_cron", "run_time_zone", "run_cron_since", "next_run_at", "run_problem", "run_problem_value"]
    )
    value = timetable.reason.as_json() if timetable else None
    audit.record(by, "job.run_schedule", f"job {job.name}", schedule=str(timetable or "none"), schedule_value=value)


def start_due_runs(now: datetime) -> list[Reason]:
    """Start every due run, and return the result of each."""
    scheduled = Job.objects.exclude(run_cron="")
    for job in scheduled.filter(next_run_at=None):
        Job.objects.filter(pk=job.pk, next_run_at=None).update(next_run_at=next_time(job, run_timetable, now))
    due = scheduled.filter(next_run_at__lte=now).select_related("cluster", "current_run")
    return [outcome for job in due.order_by("next_run_at", "pk") if (outcome := _start(job, now))]


def _start(job: Job, now: datetime) -> Reason | None:
    """Return the result, or None if another worker has started the run or it waits for the same reason as before."""
    due_at = job.next_run_at
    if due_at is None:
        return None
    try:
        with transaction.atomic():
            claimed = Job.objects.filter(pk=job.pk, next_run_at=due_at)
            if not claimed.update(
                next_run_at=next_time(job, run_timetable, now), run_problem="", run_problem_value=None
            ):
                return None
            if paused := pause_reason(job, now):
                raise RestartRefused("automation", "paused", paused)
            attempt = run_again(job, audit.AUTOMATION, now, RestartTrigger.SCHEDULED, due_at)
    except (RestartRefused, BadLaunch, AttemptOpen) as refused:
        return _not_started(job, due_at, refused, now)
    return Why.RESTART_DECIDED(epoch=attempt.epoch, job=job.name, reason=stored(attempt, "reason"))


def _not_started(
    job: Job, due_at: datetime, refused: RestartRefused | BadLaunch | AttemptOpen, now: datetime
) -> Reason | None:
    """Keep the run due if the cluster does not answer, until the next due time. Otherwise skip this due time.

    An application cluster that has ended with its job is not one that does not answer.
    """
    next_at = next_time(job, run_timetable, due_at)
    waits = isinstance(refused, ClusterSilent) and next_at is not None and next_at > now
    problem = (Why.RUN_WAITS if waits else Why.RUN_MISSED)(due=due_at, why=refused.reason)
    changed = {} if waits else {"next_run_at": next_time(job, run_timetable, now)}
    Job.objects.filter(pk=job.pk, next_run_at=due_at).update(**columns("run_problem", problem), **changed)
    return Why.RUN_OF_JOB(job=job.name, problem=problem) if problem != job.run_problem_value else None
