"""Makes sure that no run of the job is left: it stops the run that a person wants to replace, and no other.

A job that is stopped with a savepoint is FINISHED, and engines delete all checkpoints of a FINISHED job, even retained
ones. So if a checkpoint will be restored, this stage takes a separate savepoint and then cancels the job.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.utils.translation import gettext_noop as _

from monitoring.engine.answers import JobOverview, SavepointValidation
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Refused, RequestNotSent
from monitoring.engine.high_availability import HighAvailability, find_recovery_reason, high_availability_of
from monitoring.engine.leaders import quorum_of
from monitoring.engine.zookeeper import Quorum, stored_job_reason
from monitoring.models import (
    AttemptState,
    Cluster,
    Discovery,
    Engine,
    RefusedStart,
    RestartAttempt,
    Run,
    Savepoint,
    SavepointOrigin,
    SavepointState,
    StepState,
)
from monitoring.reasons.columns import stored
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import TIME_LIMIT
from monitoring.recovery.detection import HOLD_DOWN, within
from monitoring.recovery.launching import entry_class
from monitoring.recovery.stages.base import (
    WISHED,
    Act,
    End,
    Next,
    Outcome,
    Wait,
    automatic,
    cluster_is_over,
    engine_runs_of,
    given_up,
    jobs_of,
    launch_of,
    requires_ended_job,
    wait_for,
    write,
)
from monitoring.savepoints.request import SavepointDeferred, request_savepoint
from monitoring.savepoints.stops import has_ended_unsaved
from monitoring.savepoints.stored import validate

# How often to look again while a store of jobs that Waymark cannot reach may start the job again.
LOOK_AGAIN = timedelta(seconds=5)
# For the check right before the job is canceled. If storage does not answer, the check before the savepoint counts.
STATE_READ_WITHIN_S = 5.0


@dataclass(frozen=True)
class LiveRun:
    """The job's run that has not ended, if any.

    `is_canceled`: the engine has just accepted the request to cancel it; `failed`: the runs of the job that are FAILED;
    `may_come_back`: why the engine may start the job again; `unseen`: the high availability of a cluster whose store of
    jobs cannot be read.
    """

    job: JobOverview | None
    is_canceled: bool = False
    failed: tuple[JobOverview, ...] = ()
    may_come_back: Reason | str = ""
    unseen: HighAvailability | None = None


@dataclass(frozen=True)
class StateGone:
    """The snapshot to restore was deleted during the savepoint, because a newer checkpoint replaced it: `why`."""

    why: Reason | str


class StopJob:
    step = _("Stop the job")

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if stopped := given_up(attempt, now):
            return stopped
        try:
            store = _store(attempt.job.cluster)
        except RequestNotSent as problem:
            return wait_for(problem)
        engine_runs, known = engine_runs_of(attempt), _known_run(attempt)
        is_ours = attempt.job.cluster.engine == Engine.SPARK
        to_cancel = known if _may_cancel(attempt) else None
        saved_before, path, program = attempt.stop_first, attempt.restore_path, entry_class(launch_of(attempt))
        is_over = cluster_is_over(attempt)

        async def act(client: FlinkClient) -> object:
            answered = await jobs_of(client, cluster_over=is_over)
            jobs = answered or ()
            living, is_canceled = engine_runs.live(jobs), False
            if living is not None and living.id == to_cancel and living.state != "CANCELLING":
                if saved_before and (why := await _why_gone(client, path, program)):
                    return StateGone(why)
                await client.cancel(living.id)  # canceling twice does no harm
                is_canceled = True
            found = LiveRun(living, is_canceled, failed=engine_runs.failed(jobs))
            if living is not None or known is None:
                return found
            if store is not None:
                return replace(found, may_come_back=await asyncio.to_thread(stored_job_reason, store, known))
            wished = any(job.id == known and job.state in WISHED for job in jobs)
            return found if wished or is_ours or answered is None else await _add_recovery_reason(client, known, found)

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case LiveRun(None, failed=failed) if any(_may_be_taken_back(attempt, each, now) for each in failed):
                return Wait(Why.MAY_BE_TAKEN_BACK())
            case LiveRun(None, may_come_back=why) if why:
                return Wait(Why.MAY_COME_BACK(why=why))
            case LiveRun(None, unseen=HighAvailability() as unseen) if until := _held_until(attempt, unseen, now):
                return Wait(Why.NEXT_LEADER_MAY_START(kind=unseen.kind, until=until), LOOK_AGAIN)
            case LiveRun(None):
                # The start has its full time limit, however long the stop took.
                write(attempt, deadline_at=now + TIME_LIMIT)
                return _ended(attempt)
            case LiveRun(JobOverview() as life) if requires_ended_job(attempt):
                return End(AttemptState.CANCELED, Why.JOB_LIVES(id=life.id, state=life.state))
            case LiveRun(JobOverview() as life) if life.id != _known_run(attempt):
                return End(AttemptState.CANCELED, Why.OTHER_RUN_NOT_STOPPED(id=life.id, state=life.state))
            case LiveRun(JobOverview() as life, is_canceled):
                if is_canceled and attempt.old_run is not None:
                    Run.objects.filter(pk=attempt.old_run.pk).update(cancel_accepted_at=now)
                return _stopping(attempt, life, now)
            case StateGone(why):
                gone = Why.STATE_GONE(path=attempt.restore_path, why=why)
                return End(AttemptState.FAILED, gone, job_still_runs=True)
            case EngineError() if saved_nothing := _ended_unsaved(attempt):
                return saved_nothing
            case EngineError():
                return wait_for(answer)
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer about the status of a job")


def _store(cluster: Cluster) -> Quorum | None:
    """Return the ZooKeeper in which a highly available Flink stores its jobs, or None if it is not known."""
    if cluster.discovery != Discovery.ZOOKEEPER or cluster.engine == Engine.SPARK:
        return None
    return quorum_of(cluster)


async def _add_recovery_reason(client: FlinkClient, known: str, found: LiveRun) -> LiveRun:
    """Ask a cluster without a known ZooKeeper whether and where it stores its jobs, and add the result to `found`."""
    config = await client.manager_config_if_shown()
    available = high_availability_of(config.settings) if config else None
    if available is None:
        return found
    why = await asyncio.to_thread(find_recovery_reason, available, known)
    return replace(found, unseen=available) if why is None else replace(found, may_come_back=why)


def _held_until(attempt: RestartAttempt, unseen: HighAvailability, now: datetime) -> datetime | None:
    """Return until when another leader may take up the job, or None if that time is over."""
    run, hold = attempt.old_run, unseen.lease + settings.HA_MARGIN
    if run is None:
        return None
    # The run's end was not polled yet, so the time starts now.
    seen_at = now if run.live else run.end_seen_at or run.ended_at or attempt.created_at
    return seen_at + hold if within(hold, seen_at, now) else None


def _may_cancel(attempt: RestartAttempt) -> bool:
    if requires_ended_job(attempt):
        return False
    saved = attempt.stop_savepoint
    is_saved = saved is not None and saved.state == SavepointState.COMPLETED
    return not attempt.stop_first or (_restores_a_checkpoint(attempt) and is_saved)


def _restores_a_checkpoint(attempt: RestartAttempt) -> bool:
    """Return whether the snapshot to restore is a checkpoint, or an unknown path that may be one."""
    return bool(attempt.restore_path) and attempt.restore_is_savepoint is not True


async def _why_gone(client: FlinkClient, path: str, program: str | None) -> Reason | str:
    """Return why the snapshot is gone, "" if it exists or cannot be checked.

    Raises:
        EngineError: a later request may get an answer.
    """
    try:
        found = await validate(client, path, program, limit_s=STATE_READ_WITHIN_S)
    except Refused as refused:
        if refused.is_request_invalid:
            return refused.reason
        raise
    return found.fault if isinstance(found, SavepointValidation) else ""


def _known_run(attempt: RestartAttempt) -> str | None:
    """Return the engine job ID of the run that the attempt replaces."""
    return attempt.old_run.engine_job_id if attempt.old_run else None


def _may_be_taken_back(attempt: RestartAttempt, failed: JobOverview, now: datetime) -> bool:
    """Return whether the engine may still recover the run, which may have been started without Waymark.

    Automatic restarts have already waited HOLD_DOWN for the run that they replace.
    """
    old = attempt.old_run
    if failed.id == _known_run(attempt) and automatic(attempt):
        return False
    run = Run.objects.filter(job=attempt.job_id, engine_job_id=failed.id).order_by("number").last()
    if run is None:  # not polled yet, or a start that the engine refused
        is_later = bool(old and old.ended_at and failed.ended_at and failed.ended_at > old.ended_at)
        refused = RefusedStart.objects.filter(attempt__job=attempt.job_id, engine_job_id=failed.id)
        return is_later and not refused.exists()
    return run.live or (run.end_seen_at is not None and within(HOLD_DOWN, run.end_seen_at, now))


def _ended(attempt: RestartAttempt) -> Outcome:
    saved = attempt.stop_savepoint
    if attempt.from_stop:
        return _continue_from(attempt, saved)
    if saved is None and (requires_ended_job(attempt) or attempt.stop_first):
        return Next(AttemptState.LAUNCHING, Why.NOT_RUNNING(), StepState.SKIPPED)
    text = Why.STOPPED_AND_SAVED(path=saved.path) if saved and saved.path else Why.STOPPED()
    return Next(AttemptState.LAUNCHING, text)


def _continue_from(attempt: RestartAttempt, saved: Savepoint | None) -> Outcome:
    """Continue from the savepoint with which the job stopped, or fail if the job ended without it."""
    if saved is None:
        return End(AttemptState.FAILED, Why.ENDED_WITHOUT_SAVEPOINT(), nothing_runs=True)
    if saved.state == SavepointState.FAILED:
        return End(AttemptState.FAILED, Why.ENDED_SAVEPOINT_FAILED(failure=stored(saved, "failure")), nothing_runs=True)
    if saved.state != SavepointState.COMPLETED or not saved.path:
        return Wait(Why.SAVEPOINT_NOT_KNOWN_YET())
    write(
        attempt,
        restore_path=saved.path,
        restore_is_savepoint=True,
        restore_state_at=saved.requested_at,
        savepoint_id=saved.pk,
    )
    return Next(AttemptState.LAUNCHING, Why.STOPPED_TO_GO_ON(path=saved.path))


def _ended_unsaved(attempt: RestartAttempt) -> End | None:
    """Return the failure of an attempt whose cluster has ended with the stop, but without a savepoint."""
    saved = attempt.stop_savepoint
    if saved is None or not has_ended_unsaved(saved, attempt.job.cluster):
        return None
    why = Why.ENDED_SAVEPOINT_FAILED(failure=stored(saved, "failure"))
    return End(AttemptState.FAILED, why, nothing_runs=True)


def _stopping(attempt: RestartAttempt, life: JobOverview, now: datetime) -> Outcome:
    if not attempt.stop_first:
        return Wait(Why.CANCELLING(state=life.state))
    saved = attempt.stop_savepoint
    if saved is None:
        return _request_stop(attempt, now)
    if saved.state == SavepointState.FAILED:
        return End(AttemptState.FAILED, Why.SAVEPOINT_FAILED(failure=stored(saved, "failure")), job_still_runs=True)
    if not _restores_a_checkpoint(attempt):
        return Wait(Why.STOPPING_WITH_SAVEPOINT(state=life.state))
    if saved.state == SavepointState.COMPLETED:
        return Wait(Why.SAVED_CANCELLING(state=life.state))
    return Wait(Why.SAVING_BEFORE_CANCEL(state=life.state))


def _request_stop(attempt: RestartAttempt, now: datetime) -> Outcome:
    stops_job = not _restores_a_checkpoint(attempt)
    try:
        saved = request_savepoint(attempt.job, SavepointOrigin.RESTART, attempt.requested_by, now, stops_job=stops_job)
    except SavepointDeferred as deferred:
        return Wait(Why.SAVEPOINT_DEFERRED(reason=deferred.reason))
    write(attempt, stop_savepoint_id=saved.pk)
    return Wait(Why.STOP_ASKED() if stops_job else Why.SAVEPOINT_ASKED())
