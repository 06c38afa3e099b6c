"""Checks that the cluster has the program, before anything is stopped. A program that it lost is uploaded again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Malformed, NotFound, NotReady, Refused, Unreachable
from monitoring.models import AttemptState, RestartAttempt, StepState
from monitoring.programs import Damaged, content_of, copy_of, placed
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.launching import BadLaunch, check_launch, uploaded_program
from monitoring.recovery.stages.base import Act, End, Next, Outcome, Wait, given_up, launch_of, wait_for, write


@dataclass(frozen=True)
class OnCluster:
    """The IDs of the programs on the cluster."""

    jar_ids: frozenset[str]


@dataclass(frozen=True)
class Uploaded:
    jar_id: str


class CheckProgram:
    step = _("Check the program")

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if stopped := given_up(attempt, now):
            return stopped
        launch = launch_of(attempt)
        try:
            check_launch(launch)
        except BadLaunch as problem:
            return End(AttemptState.FAILED, problem.reason)
        if uploaded_program(launch) is None:
            return Next(next_state(attempt), Why.STARTED_BY_COMMAND(), StepState.SKIPPED)

        async def act(client: FlinkClient) -> object:
            return OnCluster(frozenset(jar.id for jar in await client.jars()))

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        jar_id = uploaded_program(launch_of(attempt))
        match answer:
            case OnCluster(jar_ids) if jar_id in jar_ids:
                return Next(next_state(attempt), Why.PROGRAM_ON_CLUSTER(program=jar_id))
            case OnCluster():
                return lost(attempt)
            case NotFound():
                return End(AttemptState.FAILED, Why.PROGRAMS_REFUSED(answer=answer.reason))
            case EngineError():
                return wait_for(answer)
            case _:
                raise TypeError(f"{type(answer).__name__} is not a list of programs")


def lost(attempt: RestartAttempt) -> Next | End:
    """Return the upload as the next stage, or a failure if Waymark has no copy of the lost program."""
    jar_id = uploaded_program(launch_of(attempt))
    copy = copy_of(attempt.job.cluster, jar_id)
    if copy is None:
        return End(AttemptState.FAILED, Why.PROGRAM_LOST(program=jar_id), nothing_runs=True)
    return Next(AttemptState.UPLOADING, Why.PROGRAM_TO_UPLOAD(program=jar_id))


def next_state(attempt: RestartAttempt) -> AttemptState:
    """Return the attempt's next state after the program is on the cluster."""
    return AttemptState.IMPORTING if attempt.imports else AttemptState.VALIDATING


class UploadProgram:
    """Uploads the program. After a crash it may be uploaded twice; then one copy is never run."""

    step = _("Upload the program")

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        if stopped := given_up(attempt, now):
            return stopped
        program = copy_of(attempt.job.cluster, uploaded_program(launch_of(attempt)))
        if program is None:
            return lost(attempt)
        try:
            name, content = program.name, content_of(program)
        except Damaged as damage:
            return End(AttemptState.FAILED, Why.PROGRAM_DAMAGED(damage=str(damage)))

        async def act(client: FlinkClient) -> object:
            return Uploaded(await client.upload_jar(name, content))

        return Act(act)

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case Uploaded(jar_id):
                launch = launch_of(attempt) or {}
                program = copy_of(attempt.job.cluster, uploaded_program(launch))
                if program is None:
                    return lost(attempt)
                placed(attempt.job.cluster, jar_id, program)
                write(attempt, launch={**launch, "jar_id": jar_id})
                return Next(next_state(attempt), Why.PROGRAM_UPLOADED(program=program.name, id=jar_id))
            case Unreachable() | NotReady() | Malformed() | Refused(is_request_invalid=False):
                return wait_for(answer)
            case EngineError():
                return End(AttemptState.FAILED, Why.PROGRAM_REFUSED(answer=answer.reason))
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer to an upload")
