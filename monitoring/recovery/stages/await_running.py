"""Waits until the engine reports the new run as RUNNING and the poller has stored it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils.translation import gettext_noop as _

from checkpointing.jobs.launching.admission import Lacking
from monitoring.discovery.platform import unseen_run
from monitoring.engine.answers import TERMINAL_STATES, JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, NotFound
from monitoring.launches import Launched, remember
from monitoring.models import AttemptState, Cluster, Job, LaunchOrigin, RestartAttempt, Run, RunStateChange
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import TIME_LIMIT
from monitoring.recovery.stages.base import (
    Act,
    End,
    Next,
    Outcome,
    Wait,
    automatic,
    engine_runs_of,
    launch_of,
    starts_cluster,
    wait_for,
    write,
)
from monitoring.recovery.stages.check_state import reject, remember_finding, reports_missing_path, reports_missing_state

# The attempt waits at most this long for a poll that stores the running run, so that it can link the run.
LINK_WITHIN = timedelta(seconds=30)
# Flink reports a job as RUNNING before any of its tasks runs.
_NOT_YET = frozenset(("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING"))


@dataclass(frozen=True)
class Seen:
    """The engine's view of the new run.

    `failure`: the engine's reason for a failure; `starting`: operators that do not run yet; `waits_for`: what the
    driver needs before it may start, a value of `Lacking`.
    """

    job: JobOverview | None
    failure: str = ""
    starting: tuple[str, ...] = ()
    waits_for: str = ""


class AwaitRunning:
    step = _("Wait until it runs")

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        engine_runs = engine_runs_of(attempt)

        async def act(client: FlinkClient) -> object:
            return await _look(client, engine_runs.own(await client.jobs_overview()))

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case Seen(None) | EngineError() if ended := ended_unseen(attempt, now):
                return ended
            case Seen(None):
                return Wait(Why.NOT_NAMED(id=attempt.engine_job_id))
            case Seen(JobOverview(state="RUNNING"), starting=(_, *_) as starting):
                return Wait(_starting(starting))
            case Seen(JobOverview(state="RUNNING" | "FINISHED" as state)):
                return _runs(attempt, state, now)
            case Seen(JobOverview(state=state), failure) if state in TERMINAL_STATES:
                return _died(attempt, state, failure, now)
            case Seen(JobOverview(state=state), waits_for=str(what)) if what:
                # The time limit starts when the driver may start.
                write(attempt, deadline_at=max(attempt.deadline_at, now + TIME_LIMIT))
                if what == Lacking.ENVIRONMENT.value:
                    return Wait(Why.ENVIRONMENT_PREPARED(state=state))
                return Wait(Why.WAITS_FOR_TURN(state=state))
            case Seen(JobOverview(state=state), failure) if failure:
                return Wait(Why.NEW_RUN_SAYS(state=state, failure=failure))
            case Seen(JobOverview(state=state)):
                return Wait(Why.NEW_RUN_IS(state=state))
            case EngineError():
                return wait_for(answer)
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer about a run")


async def _look(client: FlinkClient, job: JobOverview | None) -> Seen:
    match job:
        case JobOverview(state="RUNNING"):
            try:
                vertices = (await client.job(job.id)).vertices
            except NotFound:
                return Seen(job)
            return Seen(job, starting=tuple(each.name for each in vertices if each.status in _NOT_YET))
        case JobOverview(state="CREATED"):
            try:
                wait = (await client.job(job.id)).launch_wait
            except NotFound:
                return Seen(job)
            return Seen(job, waits_for="" if wait is None else wait.lacking)
        case JobOverview(state="FAILED" | "FAILING" | "RESTARTING"):
            exceptions = await client.exceptions(job.id)
            return Seen(job, exceptions[0].message if exceptions else "")
        case _:
            return Seen(job)


def _starting(names: Sequence[str]) -> Reason:
    if len(names) == 1:
        return Why.OPERATOR_NOT_RUNNING(name=names[0])
    return Why.OPERATORS_NOT_RUNNING(count=len(names))


def _died(attempt: RestartAttempt, state: str, failure: str, now: datetime) -> Outcome:
    """Handle a new run that failed.

    If it failed because of its snapshot, an automatic restart tries the next snapshot under a new engine job ID.
    """
    if is_of_state := reports_missing_state(failure):
        remember_finding(attempt, failure, now, missing=reports_missing_path(failure))
    if automatic(attempt) and is_of_state:
        return reject(attempt, failure, now, (attempt.engine_job_id,), state_gone=True)
    why = Why.NEW_RUN_SAYS(state=state, failure=failure or Why.NO_REASON_GIVEN())
    return End(AttemptState.FAILED, why, nothing_runs=True)


def ended_unseen(attempt: RestartAttempt, now: datetime) -> Outcome | None:
    """Return the outcome if the cluster that the command started has ended, None if this is not known.

    Polls may have seen the end of the new run, also in the History Server. Otherwise only the platform can report it,
    and the run is stored.
    """
    old, since = attempt.old_run, attempt.launch_sent_at
    if old is None or since is None or not starts_cluster(attempt):
        return None
    later = Run.objects.filter(job=attempt.job_id, number__gt=old.number).select_related("job").order_by("-number")
    run = later.first()
    if run is None or not (run.live or (run.end_seen_at is not None and run.end_seen_at > since)):
        run = _add_unseen(attempt, run or old, since, now)
    if run is None or run.live:
        return None
    _remember_launch(attempt, run, now)
    if run.state == "FINISHED":
        outcome: Outcome = End(AttemptState.SUCCEEDED, Why.NEW_RUN_IS(state=run.state))
    else:
        outcome = _died(attempt, run.state, run.exception, now)
    if isinstance(outcome, End):
        write(attempt, new_run_id=run.pk)
    return outcome


def _add_unseen(attempt: RestartAttempt, last: Run, since: datetime, now: datetime) -> Run | None:
    """Store the run that followed `last` and ended before a poll, None if the platform does not report one."""
    found = unseen_run(attempt.job.cluster, last, since)
    if found is None:
        return None
    end = found.end
    run = Run(
        job_id=attempt.job_id,
        number=last.number + 1,
        # YARN does not report the job's ID. It is the one that Waymark chose if the command passes that on.
        engine_job_id=found.job_id or attempt.engine_job_id,
        state=end.state,
        observed_at=now,
        started_at=found.started_at or since,
        ended_at=end.at,
        end_seen_at=now,
        final_read_done=True,
        exception=end.error,
        exceptions=end.exceptions,
    )
    try:
        with transaction.atomic():
            if run.engine_job_id == last.engine_job_id:
                Run.objects.filter(pk=last.pk).update(superseded=True)
                # Pollers that remember the last run read it again.
                Cluster.objects.filter(pk=attempt.job.cluster_id).update(revision=F("revision") + 1)
            run.save()
    except IntegrityError:
        return None  # a poll has just stored the run
    RunStateChange.objects.create(run=run, at=now, target=run.state, **columns("why", end.why))
    Job.objects.filter(pk=attempt.job_id).update(current_run=run)
    return run


def _runs(attempt: RestartAttempt, state: str, now: datetime) -> Outcome:
    run = (
        Run.objects.filter(job=attempt.job_id, engine_job_id=attempt.engine_job_id)
        .exclude(number__lte=attempt.old_run.number if attempt.old_run else 0)  # deployments may share a job ID
        .select_related("job")
        .order_by("-number")
        .first()
    )
    if run is None and now - (attempt.launched_at or now) < LINK_WITHIN:
        return Wait(Why.NEW_RUN_NOT_READ(state=state))
    write(attempt, new_run_id=run.pk if run else None)
    if run is not None:
        _remember_launch(attempt, run, now)
    return End(AttemptState.SUCCEEDED, Why.NEW_RUN_IS(state=state))


def _remember_launch(attempt: RestartAttempt, run: Run, now: datetime) -> None:
    if run.launch_version_id is None and (spec := launch_of(attempt)) is not None:
        # The engine cannot report how it started the job, so store what was sent.
        remember([Launched(run, spec)], LaunchOrigin.RESTART, attempt.requested_by, now)
