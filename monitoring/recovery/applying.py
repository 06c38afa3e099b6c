"""Apply a stage's outcome to the attempt in one transaction, only while this worker holds the claim."""

from __future__ import annotations

from datetime import datetime
from typing import assert_never

from monitoring.engine.errors import NotReady, Unreachable
from monitoring.models import AttemptState, RestartAttempt, SavepointState, StepState
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import end, show_step
from monitoring.recovery.going_back import undo_change
from monitoring.recovery.not_restarted import report_not_restarted
from monitoring.recovery.stages.await_running import AwaitRunning
from monitoring.recovery.stages.base import (
    End,
    Next,
    Outcome,
    Overtaken,
    Stage,
    Wait,
    automatic,
    starts_cluster,
    write,
)
from monitoring.recovery.stages.check_state import CheckState
from monitoring.recovery.stages.import_state import ImportState
from monitoring.recovery.stages.prepare_program import CheckProgram, UploadProgram
from monitoring.recovery.stages.start_job import StartJob
from monitoring.recovery.stages.stop_job import StopJob
from monitoring.recovery.stages.through_operator import NoProgram, Redeploy, SaveJob

STAGES: dict[AttemptState, Stage] = {
    AttemptState.DECIDED: CheckProgram(),
    AttemptState.UPLOADING: UploadProgram(),
    AttemptState.IMPORTING: ImportState(),
    AttemptState.VALIDATING: CheckState(),
    AttemptState.STOPPING: StopJob(),
    AttemptState.LAUNCHING: StartJob(),
    AttemptState.WAITING: AwaitRunning(),
}
# The stages that take the place of these if the Flink operator runs the job.
_THROUGH_OPERATOR: dict[AttemptState, Stage] = {
    AttemptState.DECIDED: NoProgram(),
    AttemptState.STOPPING: SaveJob(),
    AttemptState.LAUNCHING: Redeploy(),
}
RELATED = ("job__cluster", "job__current_run", "old_run", "stop_savepoint")
ENDS = {
    AttemptState.SUCCEEDED: Why.SUCCEEDED,
    AttemptState.FAILED: Why.ENDED_FAILED,
    AttemptState.CANCELED: Why.CANCELED,
}
SHOWN_END = {
    AttemptState.SUCCEEDED: StepState.DONE,
    AttemptState.FAILED: StepState.FAILED,
    AttemptState.CANCELED: StepState.SKIPPED,
}


def stage_of(attempt: RestartAttempt) -> Stage:
    state = AttemptState(attempt.state)
    return _THROUGH_OPERATOR.get(state, STAGES[state]) if attempt.resource else STAGES[state]


def apply(claimed: RestartAttempt, answer: object, decided: Outcome | None, now: datetime) -> Why | None:
    """Apply the stage's outcome. Return None if another stage follows at once, else the code of the result.

    `decided`: the outcome, if the plan did not need an answer of the engine. Raises Overtaken.
    """
    attempt = _locked(claimed)
    stage = stage_of(attempt)
    outcome = decided or stage.conclude(attempt, answer, now)
    if isinstance(outcome, Wait) and _too_late(attempt, answer, now):
        outcome = End(AttemptState.FAILED, Why.OUT_OF_TIME(last=outcome.text))
    match outcome:
        case Next(state, text, shown_as):
            show_step(attempt, stage.step, shown_as, text, now)
            show_step(attempt, STAGES[state].step, StepState.RUNNING, "", now)
            write(attempt, state=state, next_step_at=now)
            return None
        case Wait(text, after):
            show_step(attempt, stage.step, StepState.RUNNING, text, now)
            write(attempt, next_step_at=now + after, claimed_until=None)
            return Why.WAITING
        case End(state):
            show_step(attempt, stage.step, SHOWN_END[state], outcome.why, now)
            end(attempt, state, outcome.why, now)
            if state is AttemptState.FAILED:
                _after_failure(attempt, outcome, now)
            return ENDS[state]
        case _:
            assert_never(outcome)


def _after_failure(attempt: RestartAttempt, failed: End, now: datetime) -> None:
    if failed.nothing_runs and undo_change(attempt, now):
        return
    if automatic(attempt) or attempt.back_from_id is not None or _left_down(attempt, failed):
        sentence = Why.RESTART_FAILED(epoch=attempt.epoch, job=attempt.job.name, why=failed.why)
        report_not_restarted(attempt.job, sentence, {"attempt": attempt.pk}, now)


def _left_down(attempt: RestartAttempt, failed: End) -> bool:
    """Return whether a manual restart stopped a live job, or the job ended during it, and was not started again."""
    run = attempt.old_run
    ended_at = None if run is None or run.live else run.end_seen_at or run.ended_at
    if failed.job_still_runs or run is None or (ended_at is not None and ended_at < attempt.created_at):
        return False
    passed = attempt.steps.filter(name=StopJob.step, state__in=(StepState.DONE, StepState.SKIPPED)).exists()
    is_asked_to_stop = attempt.stop_savepoint_id is not None or not attempt.stop_first or failed.nothing_runs
    return passed or (attempt.state == AttemptState.STOPPING and is_asked_to_stop)


def _locked(claimed: RestartAttempt) -> RestartAttempt:
    ours = RestartAttempt.objects.filter(pk=claimed.pk, claimed_until=claimed.claimed_until)
    attempt = ours.select_related(*RELATED).select_for_update(of=("self",)).first()
    if attempt is None:
        raise Overtaken
    return attempt


def _too_late(attempt: RestartAttempt, answer: object, now: datetime) -> bool:
    """Return whether the attempt must end because its time is up.

    It does not end while its savepoint, which has its own time limit, is in progress: the job would stop without a
    restart. While the engine is silent, an attempt that may have stopped or started the job continues, unless its
    command started another cluster, which may never answer.
    """
    saved = attempt.stop_savepoint
    if now < attempt.deadline_at or (saved is not None and SavepointState(saved.state).open):
        return False
    silent = isinstance(answer, Unreachable | NotReady)
    is_sent = attempt.launch_sent_at is not None
    return not (silent and (saved is not None or is_sent)) or (is_sent and starts_cluster(attempt))
