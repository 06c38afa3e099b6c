"""Read the stored facts on which a restart is decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from django.db.models.functions import Coalesce

from monitoring.discovery.platform import may_live, still_reports_end, unseen_run
from monitoring.exceptions import exception_text
from monitoring.kubernetes.job_resources import JobResource, resource_of
from monitoring.models import (
    WATCHED_DISCOVERIES,
    AutomationPause,
    Checkpoint,
    CheckpointStatus,
    FoundResource,
    Job,
    RestartAttempt,
    RestartTrigger,
    Run,
    RunState,
)
from monitoring.models.recovery import ENDED
from monitoring.pauses import pause_reason
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason
from monitoring.recovery.detection import (
    BRAKE_WINDOW,
    DAY,
    DEAD,
    HEALTHY_AFTER,
    HEALTHY_CHECKPOINTS,
    JobFacts,
)
from monitoring.recovery.launching import is_command
from monitoring.recovery.rows_written_again import REFUSED

# If polls do not see a restarted run within this time, they will not see it at all.
AWAIT_RUN = timedelta(minutes=2)


def dead_jobs() -> list[Job]:
    """Return the jobs with automatic restart whose current run is dead."""
    dead = Job.objects.filter(auto_restart=True, managed_elsewhere="", current_run__state__in=DEAD)
    dead = dead.exclude(cluster__discovery__in=WATCHED_DISCOVERIES)
    return list(dead.select_related("cluster", "current_run"))


def facts_of(job: Job, now: datetime, pauses: Collection[AutomationPause] | None = None) -> JobFacts:
    """Return the facts of the job. `pauses`: the active pauses, if the caller has read them."""
    run, resource = job.current_run, resource_of(job)
    died_at = (run.ended_at or run.observed_at) if run else None
    attempts = RestartAttempt.objects.filter(job=job)
    of_the_day = _automatic_restarts(job, now)
    counted_since = _counted_since(of_the_day, now)
    return JobFacts(
        name=job.name,
        run_state=RunState(run.state) if run else None,
        died_at=died_at,
        death_seen_at=(run.end_seen_at or died_at) if run else None,
        final_read_done=run is not None and run.final_read_done,
        # The operator replaces a job even if its cluster does not answer.
        cluster_reachable=job.cluster.reachable or resource is not None or may_start_cluster(job),
        auto_restart=job.auto_restart,
        paused=pause_reason(job, now, pauses) or _operated(resource),
        launch_known=resource is not None or job.launch is not None,
        restart_on_lost=job.restart_on_lost,
        breaker_opened_at=job.breaker_opened_at,
        breaker_reason=stored(job, "breaker_reason"),
        max_restarts_per_hour=job.max_restarts_per_hour,
        max_restarts_per_day=job.max_restarts_per_day,
        automatic_restarts=tuple(
            each.created_at for each in of_the_day if counted_since is None or each.created_at > counted_since
        ),
        of_the_day=len(of_the_day),
        open_attempt=attempts.exclude(state__in=ENDED).exists(),
        awaited_run=_awaits_run(job, now),
        deaths_nearby=_deaths_nearby(job, died_at) if died_at else 0,
        cause=cause_of_death(run) if run else "",
        restore_refused=run is not None and _exception_of_death(run).get("name") == REFUSED,
    )


def may_start_cluster(job: Job) -> bool:
    """Return whether the job's cluster has ended with it, so that its command starts another one and not a second one.

    If a command was run after this end and its cluster has not appeared, it may still do so. Then only the platform can
    report that nothing was started, or that what was started has failed.
    """
    run, cluster = job.current_run, job.cluster
    if run is None or not is_command(job.launch) or not cluster.has_ended:
        return False
    last = RestartAttempt.objects.filter(job=job).order_by("-epoch").first()
    if last is None or last.launch_sent_at is None or last.old_run_id != run.pk:
        return not may_live(cluster)
    if last.ended_at is None:
        return False
    started = unseen_run(cluster, run, last.launch_sent_at)
    return still_reports_end(cluster, run, last.ended_at) or (started is not None and started.end.state in DEAD)


def _operated(resource: FoundResource | None) -> Reason | None:
    """Return that only the Flink operator may start the job, None if Waymark may start it or ask the operator."""
    if resource is None or resource.source.restarts_jobs:
        return None
    return AutomationReason.MANAGED_ELSEWHERE(who=str(JobResource.of(resource)))


def cause_of_death(run: Run) -> str:
    """Return the class, message and task of a FAILED run's exception, or "" if the engine reported none."""
    exception = _exception_of_death(run)
    return exception_text(exception) if exception else ""


def _exception_of_death(run: Run) -> Mapping[str, str]:
    return run.exceptions[0] if run.state == RunState.FAILED and run.exceptions else {}


def _automatic_restarts(job: Job, now: datetime) -> list[RestartAttempt]:
    """Return the automatic restarts of the last day, newest first, without those before a person closed the breaker."""
    rows = RestartAttempt.objects.filter(job=job, trigger=RestartTrigger.AUTOMATIC, created_at__gt=now - DAY)
    if job.budget_since is not None:
        rows = rows.filter(created_at__gt=job.budget_since)
    return list(rows.select_related("new_run").order_by("-created_at"))


def _counted_since(restarts: Iterable[RestartAttempt], now: datetime) -> datetime | None:
    """Return the time of the newest restart with a healthy run: restarts up to it no longer count for the hour."""
    for attempt in restarts:
        run = attempt.new_run
        if run is None or (run.ended_at or now) - run.started_at < HEALTHY_AFTER:
            continue
        completed = Checkpoint.objects.filter(run=run, status=CheckpointStatus.COMPLETED, is_savepoint=False)
        if completed[:HEALTHY_CHECKPOINTS].count() >= HEALTHY_CHECKPOINTS:
            return attempt.created_at
    return None


def _awaits_run(job: Job, now: datetime) -> bool:
    """Return whether the last attempt's run was not polled yet: until then, the stored run is the previous dead one."""
    last = RestartAttempt.objects.filter(job=job).order_by("-epoch").first()
    if last is None or last.launched_at is None or last.ended_at is None:
        return False
    polled = Run.objects.filter(job=job, engine_job_id=last.engine_job_id).exists()
    return not polled and now - last.ended_at < AWAIT_RUN


def _deaths_nearby(job: Job, died_at: datetime) -> int:
    return (
        Run.objects.filter(job__cluster=job.cluster, state__in=DEAD)
        .annotate(died_at=Coalesce("ended_at", "observed_at"))
        .filter(died_at__gt=died_at - BRAKE_WINDOW, died_at__lt=died_at + BRAKE_WINDOW)
        .values("job")
        .distinct()
        .count()
    )
