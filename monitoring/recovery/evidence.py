"""The stored facts that a restart is decided on."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models.functions import Coalesce

from monitoring.models import AttemptState, Job, RestartAttempt, RestartTrigger, Run, RunState
from monitoring.recovery.detection import BRAKE_WINDOW, BUDGET_WINDOW, DEAD, JobFacts

ENDED = (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELED)
# A poll that does not see a restarted run for so long will not see it any more.
AWAIT_RUN = timedelta(minutes=2)


def dead_jobs() -> list[Job]:
    """Jobs with automatic restart whose current run is dead."""
    return list(
        Job.objects.filter(auto_restart=True, current_run__state__in=DEAD).select_related("cluster", "current_run")
    )


def facts_of(job: Job, now: datetime) -> JobFacts:
    run = job.current_run
    died_at = (run.ended_at or run.observed_at) if run else None
    attempts = RestartAttempt.objects.filter(job=job)
    return JobFacts(
        name=job.name,
        run_state=RunState(run.state) if run else None,
        died_at=died_at,
        final_read_done=run is not None and run.final_read_done,
        cluster_reachable=job.cluster.reachable,
        auto_restart=job.auto_restart,
        paused=job.automation_paused,
        launch_known=job.launch is not None,
        max_restarts_per_hour=job.max_restarts_per_hour,
        automatic_restarts=tuple(
            attempts.filter(trigger=RestartTrigger.AUTOMATIC, created_at__gt=now - BUDGET_WINDOW).values_list(
                "created_at", flat=True
            )
        ),
        open_attempt=attempts.exclude(state__in=ENDED).exists(),
        awaited_run=_awaits_run(job, now),
        deaths_nearby=_deaths_nearby(job, died_at) if died_at else 0,
    )


def _awaits_run(job: Job, now: datetime) -> bool:
    last = RestartAttempt.objects.filter(job=job).order_by("-epoch").first()
    if last is None or last.state != AttemptState.SUCCEEDED or last.ended_at is None:
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
