"""Restarts a job that the Flink operator runs: Waymark changes the job's resource, and the operator does the rest.

The request carries a nonce, which is stored in the resource. So it may be sent again after a crash or a lost answer,
and the operator redeploys the job once. If the operator or a person has restarted the job since, nothing is requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.engine.answers import JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, NotFound, Refused, RequestNotSent
from monitoring.kubernetes.api import Conflict, KubernetesApi
from monitoring.kubernetes.credentials import connection_of
from monitoring.kubernetes.flink_operator import NotOurs, Redeployed, Redeployment, redeploy
from monitoring.kubernetes.job_program import ProgramChange
from monitoring.kubernetes.job_resources import JobResource
from monitoring.models import (
    AttemptState,
    DiscoverySource,
    RestartAttempt,
    SavepointOrigin,
    SavepointState,
    StepState,
)
from monitoring.reasons.columns import stored
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.stages.base import (
    Act,
    End,
    Next,
    Outcome,
    Wait,
    automatic,
    engine_runs_of,
    given_up,
    wait_for,
    write,
)
from monitoring.recovery.stages.check_state import reject, reports_missing_state
from monitoring.recovery.stages.prepare_program import CheckProgram
from monitoring.recovery.stages.start_job import StartJob
from monitoring.recovery.stages.stop_job import StopJob
from monitoring.savepoints.request import SavepointDeferred, request_savepoint

_LOOK_AGAIN = timedelta(seconds=3)
# Kubernetes may have to find room for the pods and to pull their images.
_DEPLOYED_WITHIN = timedelta(minutes=30)
# A changed program that is not deployed by then is changed back, if the person wanted that.
CHANGED_WITHIN = timedelta(minutes=10)
_RUNS = ("RUNNING", "FINISHED")
_ENDED = ("FAILED", "CANCELED")


class NoProgram:
    """Takes the place of CheckProgram: the resource says how the job is started."""

    step = CheckProgram.step

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if stopped := given_up(attempt, now):
            return stopped
        return Next(AttemptState.VALIDATING, Why.STARTED_BY_OPERATOR(resource=str(_target(attempt))), StepState.SKIPPED)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        raise TypeError("nothing was asked")


@dataclass(frozen=True)
class Living:
    """The job's run that has not ended, None if there is none."""

    job: JobOverview | None


class SaveJob:
    """Takes the place of StopJob: takes the savepoint, if one was requested. The operator stops the job."""

    step = StopJob.step

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if stopped := given_up(attempt, now):
            return stopped
        run = attempt.old_run
        if run is None or not run.live or not attempt.stop_first or attempt.from_stop:
            return _go_on(attempt)
        engine_runs = engine_runs_of(attempt)

        async def act(client: FlinkClient) -> object:
            return Living(engine_runs.live(await client.jobs_overview()))

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case Living(None):
                return _go_on(attempt)
            case Living(JobOverview() as life) if life.id != _old_id(attempt):
                return End(AttemptState.CANCELED, Why.OTHER_RUN_NOT_STOPPED(id=life.id, state=life.state))
            case Living():
                return _save(attempt, now)
            case EngineError():
                return wait_for(answer)
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer about the status of a job")


def _save(attempt: RestartAttempt, now: datetime) -> Outcome:
    saved = attempt.stop_savepoint
    if saved is None:
        try:
            saved = request_savepoint(attempt.job, SavepointOrigin.RESTART, attempt.requested_by, now)
        except SavepointDeferred as deferred:
            return Wait(Why.SAVEPOINT_DEFERRED(reason=deferred.reason))
        write(attempt, stop_savepoint_id=saved.pk)
        return Wait(Why.SAVEPOINT_ASKED())
    if saved.state == SavepointState.COMPLETED:
        return _go_on(attempt)
    if saved.state == SavepointState.FAILED:
        return End(AttemptState.FAILED, Why.SAVEPOINT_FAILED(failure=stored(saved, "failure")), job_still_runs=True)
    return Wait(Why.SAVING_BEFORE_REDEPLOY())


def _go_on(attempt: RestartAttempt) -> Next:
    saved = attempt.stop_savepoint
    if saved is not None and saved.path:
        return Next(AttemptState.LAUNCHING, Why.SAVED_BEFORE(path=saved.path))
    return Next(AttemptState.LAUNCHING, Why.STOPPED_BY_OPERATOR(), StepState.SKIPPED)


class Redeploy:
    """Takes the place of StartJob: requests the redeployment, and waits until the operator has deployed the job."""

    step = StartJob.step

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if attempt.launch_sent_at is None and (stopped := given_up(attempt, now)):
            return stopped
        target, wanted = _target(attempt), _wanted(attempt)
        source = DiscoverySource.objects.filter(pk=target.source).first()
        if source is None or not source.restarts_jobs:
            return End(AttemptState.FAILED, Why.SOURCE_GONE(resource=str(target)))
        try:
            connection = connection_of(source)
        except RequestNotSent as problem:
            return wait_for(problem)
        if attempt.launch_sent_at is None:
            limit = CHANGED_WITHIN if attempt.goes_back else _DEPLOYED_WITHIN
            deadline = max(attempt.deadline_at, now + limit)
            write(attempt, launch_sent_at=now, launches=attempt.launches + 1, deadline_at=deadline)

        async def act(client: FlinkClient) -> object:
            async with KubernetesApi(connection) as api:
                return await redeploy(api, target, wanted)

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case Redeployed(True, job_id, job_state, error) if job_id and job_state in _ENDED:
                return _failed(attempt, job_id, error or job_state, now)
            case Redeployed(True, job_id, job_state) if job_id and job_state in _RUNS:
                write(attempt, launched_at=now, engine_job_id=job_id)
                return Next(AttemptState.WAITING, Why.REDEPLOYED(id=job_id, resource=str(_target(attempt))))
            case Redeployed(is_rolled_back=True, error=error):
                why = Why.ROLLED_BACK(resource=str(_target(attempt)), error=error or "–")
                return End(AttemptState.FAILED, why, job_still_runs=True)
            case Redeployed(error=error):
                return _not_deployed_yet(attempt, error, now)
            case Conflict():
                return Wait(Why.ENGINE_SAID(answer=answer.reason))
            case NotOurs():
                return End(AttemptState.CANCELED, Why.NOT_REDEPLOYED(why=answer.reason))
            case NotFound():
                return End(AttemptState.FAILED, Why.NOT_REDEPLOYED(why=answer.reason))
            case Refused(is_request_invalid=True):
                return End(AttemptState.FAILED, Why.NOT_REDEPLOYED(why=answer.reason))
            case EngineError():
                return wait_for(answer)
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer to a redeployment")


def _not_deployed_yet(attempt: RestartAttempt, error: str, now: datetime) -> Outcome:
    """Wait until the time is up. A request to change the program back is safe even then: the operator runs one job."""
    resource = str(_target(attempt))
    says = Why.OPERATOR_SAYS(error=error, resource=resource) if error else Why.REDEPLOY_ASKED(resource=resource)
    if now < attempt.deadline_at:
        return Wait(says, _LOOK_AGAIN)
    return End(AttemptState.FAILED, Why.OUT_OF_TIME(last=says), nothing_runs=True)


def _failed(attempt: RestartAttempt, job_id: str, failure: str, now: datetime) -> Outcome:
    """Handle a new run that ended. If its snapshot is the cause, an automatic restart tries the next one."""
    if automatic(attempt) and reports_missing_state(failure):
        return reject(attempt, failure, now, (job_id,), state_gone=True)
    return End(AttemptState.FAILED, Why.NEW_RUN_SAYS(state="FAILED", failure=failure), nothing_runs=True)


def _old_id(attempt: RestartAttempt) -> str:
    return attempt.old_run.engine_job_id if attempt.old_run else ""


def _target(attempt: RestartAttempt) -> JobResource:
    return JobResource.from_json(attempt.resource or {})


def _wanted(attempt: RestartAttempt) -> Redeployment:
    """Return the request. Its nonce is the time of the attempt in milliseconds, and one more for each refused start."""
    nonce = _nonce_of(attempt) + len(attempt.rejected)
    first = _nonce_of(attempt.back_from or attempt)
    change = ProgramChange.from_json(attempt.launch) if attempt.launch else None
    return Redeployment(nonce, first, attempt.restore_path, _old_id(attempt), change)


def _nonce_of(attempt: RestartAttempt) -> int:
    return round(attempt.created_at.timestamp() * 1000)
