"""A stage plans from stored rows, acts on the engine in no transaction, and concludes from the answer.

Whatever happens between two of these, the stage is planned anew from the row: every act must bear being repeated, or
must be looked up first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from monitoring.engine.answers import TERMINAL_STATES, JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine_calls import CALL_LIMIT_S
from monitoring.models import AttemptState, RestartAttempt, RestartTrigger, Run, StepState
from monitoring.pauses import why_paused
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.rows_written_again import end_states
from monitoring.savepoints.history import plain_path

# How a job's life ends if somebody, or its program, wants it to.
WISHED = ("CANCELED", "FINISHED")


@dataclass(frozen=True)
class Act:
    """What a stage does at the engine, between transactions; `limit_s`: the time for the whole of it."""

    call: Callable[[FlinkClient], Awaitable[object]]
    limit_s: float = CALL_LIMIT_S


@dataclass(frozen=True)
class Next:
    """The stage is over; go on with `state` at once."""

    state: AttemptState
    text: Reason
    shown_as: StepState = StepState.DONE


@dataclass(frozen=True)
class Wait:
    text: Reason
    after: timedelta = timedelta(seconds=1)


@dataclass(frozen=True)
class End:
    """`nothing_runs`: by the engine's word, what the attempt was to start does not run and never will. `job_goes_on`:
    the job that was to be stopped was not."""

    state: AttemptState
    why: Reason
    nothing_runs: bool = False
    job_goes_on: bool = False


Outcome = Next | Wait | End


def wait_for(answer: EngineError) -> Wait:
    """Wait, since the engine or what is between gave this answer."""
    return Wait(Why.ENGINE_SAID(answer=answer.reason))


class Stage(Protocol):
    step: str  # its name on the page

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        """May write intent, only through `write`."""
        ...

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        """`answer` is what the act returned, or an EngineError. Runs in the transaction that applies the outcome."""
        ...


class Overtaken(Exception):
    """The claim on the attempt ended and another worker has it: drop everything."""


def write(attempt: RestartAttempt, **values: object) -> None:
    """Change the row, only while the claim is still ours. Raises Overtaken."""
    ours = RestartAttempt.objects.filter(pk=attempt.pk, claimed_until=attempt.claimed_until)
    if not ours.update(**values):
        raise Overtaken
    for name, value in values.items():
        setattr(attempt, name, value)


def automatic(attempt: RestartAttempt) -> bool:
    return attempt.trigger == RestartTrigger.AUTOMATIC


def restores_unasked(attempt: RestartAttempt) -> bool:
    """No person asked for a restore after which rows may be written a second time."""
    if attempt.trigger == RestartTrigger.SCHEDULED:
        return plain_path(attempt.restore_path) not in end_states(attempt.old_run)
    return automatic(attempt)


def of_ended_job(attempt: RestartAttempt) -> bool:
    """It was decided because the job had ended. A job that lives all the same is left alone."""
    return attempt.trigger in (RestartTrigger.AUTOMATIC, RestartTrigger.AGAIN, RestartTrigger.SCHEDULED)


def given_up(attempt: RestartAttempt, now: datetime) -> End | None:
    """Looked at before every act: automation that was paused meanwhile goes no further, nor one that was decided on
    a death that was not the last. A new death is held down and decided anew."""
    if attempt.trigger not in (RestartTrigger.AUTOMATIC, RestartTrigger.SCHEDULED):
        return None
    if why := why_paused(attempt.job, now):
        return End(AttemptState.CANCELED, Why.AUTOMATION_PAUSED(why=why))
    if not automatic(attempt):
        return None
    run = attempt.old_run
    if run is not None and run.end_seen_at is not None and run.end_seen_at > attempt.created_at:
        return End(AttemptState.CANCELED, Why.DIED_AGAIN())
    return None


def launch_of(attempt: RestartAttempt) -> dict[str, object] | None:
    """What the attempt starts the job with: its own launch record, or else the job's."""
    launch: dict[str, object] | None = attempt.launch or attempt.job.launch
    return launch


@dataclass(frozen=True)
class Lives:
    """By what a life of this job is known: its name and every engine id it ever had or was to have. `old`: the id of
    the one whose end the attempt was decided on, and when that was by the engine's clock; None: not known."""

    name: str
    ids: frozenset[str]
    own_id: str
    old: tuple[str, datetime | None] | None = None

    def own(self, jobs: Iterable[JobOverview]) -> JobOverview | None:
        """The life that this attempt started."""
        return next((job for job in jobs if job.id == self.own_id), None)

    def died_anew(self, jobs: Iterable[JobOverview]) -> bool:
        """The old one ended later than the end that was decided on."""
        old_id, ended_at = self.old or ("", None)
        return any(job.id == old_id and job.ended_at and ended_at and job.ended_at > ended_at for job in jobs)

    def live(self, jobs: Iterable[JobOverview]) -> JobOverview | None:
        """Another one that has not ended."""
        return next((job for job in self._others(jobs) if job.state not in TERMINAL_STATES), None)

    def ended_since(self, jobs: Iterable[JobOverview]) -> JobOverview | None:
        """Return another one that ended as somebody wished, after the end that was decided on."""
        old_id, decided_on = self.old or ("", None)
        return next(
            (
                job
                for job in self._others(jobs)
                if job.state in WISHED and job.id != old_id
                if job.ended_at and decided_on and job.ended_at > decided_on
            ),
            None,
        )

    def _others(self, jobs: Iterable[JobOverview]) -> Iterator[JobOverview]:
        return (job for job in jobs if job.id != self.own_id and (job.name == self.name or job.id in self.ids))


def lives_of(attempt: RestartAttempt) -> Lives:
    runs = Run.objects.filter(job=attempt.job_id).values_list("engine_job_id", flat=True)
    attempts = RestartAttempt.objects.filter(job=attempt.job_id).values_list("engine_job_id", flat=True)
    old = (attempt.old_run.engine_job_id, attempt.old_run.ended_at) if attempt.old_run else None
    return Lives(attempt.job.name, frozenset([*runs, *attempts]), attempt.engine_job_id, old)
