"""A stage plans from stored rows, acts on the engine outside transactions, and concludes from the answer.

After a crash, the stage plans again from the row. So every act must be repeatable, or the stage must first look up
whether it was done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from monitoring.discovery.platform import has_one_job, may_live
from monitoring.engine.answers import TERMINAL_STATES, JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.engine.evidence import shows_no_manager
from monitoring.engine_calls import CALL_LIMIT_S
from monitoring.models import AttemptState, RestartAttempt, RestartTrigger, Run, StepState
from monitoring.pauses import pause_reason
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.detection import DEAD
from monitoring.recovery.launching import is_command
from monitoring.recovery.rows_written_again import end_states
from monitoring.savepoints.history import CLOCK_SKEW, plain_path

# The states of an intended end, by a person or by the program itself.
WISHED = ("CANCELED", "FINISHED")


@dataclass(frozen=True)
class Act:
    """A stage's calls to the engine, outside transactions. `limit_s` is the time limit for all of them."""

    call: Callable[[FlinkClient], Awaitable[object]]
    limit_s: float = CALL_LIMIT_S


@dataclass(frozen=True)
class Next:
    """The stage is done: continue with `state` at once."""

    state: AttemptState
    text: Reason
    shown_as: StepState = StepState.DONE


@dataclass(frozen=True)
class Wait:
    text: Reason
    after: timedelta = timedelta(seconds=1)


@dataclass(frozen=True)
class End:
    """The attempt ends.

    `nothing_runs`: according to the engine, the run that the attempt should start does not run and never will.
    `job_still_runs`: the job was not stopped, or the operator has started it again as it was.
    """

    state: AttemptState
    why: Reason
    nothing_runs: bool = False
    job_still_runs: bool = False


Outcome = Next | Wait | End


def wait_for(answer: EngineError) -> Wait:
    """Return a Wait with the answer of the engine, or of a server in between, as the reason."""
    return Wait(Why.ENGINE_SAID(answer=answer.reason))


class Stage(Protocol):
    step: str  # the stage's name on the page

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        """Return what to do next. It may store an intent, but only through `write`."""
        ...

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        """Return the outcome for `answer`, the act's result or an EngineError, in the transaction that applies it."""
        ...


class Overtaken(Exception):
    """Raised if the claim on the attempt expired and another worker has it: the caller must stop."""


def write(attempt: RestartAttempt, **values: object) -> None:
    """Change the row, only while this worker holds the claim. Raises Overtaken."""
    ours = RestartAttempt.objects.filter(pk=attempt.pk, claimed_until=attempt.claimed_until)
    if not ours.update(**values):
        raise Overtaken
    for name, value in values.items():
        setattr(attempt, name, value)


def automatic(attempt: RestartAttempt) -> bool:
    return attempt.trigger == RestartTrigger.AUTOMATIC


def is_unattended_restore(attempt: RestartAttempt) -> bool:
    """Return whether rows may be written again by a restore that no person requested."""
    if attempt.trigger == RestartTrigger.SCHEDULED:
        return plain_path(attempt.restore_path) not in end_states(attempt.old_run)
    return automatic(attempt)


def requires_ended_job(attempt: RestartAttempt) -> bool:
    """Return whether the attempt was created because the job had ended. If the job runs after all, it is left alone."""
    return attempt.trigger in (RestartTrigger.AUTOMATIC, RestartTrigger.AGAIN, RestartTrigger.SCHEDULED)


def given_up(attempt: RestartAttempt, now: datetime) -> End | None:
    """Return the end of an automatic or scheduled attempt that must not continue, and None for others.

    Stages check this before they act. Either automation was paused, or the job died again after the decision, perhaps
    in a run that was started without Waymark. The new death is decided separately, after its hold-down.
    """
    if attempt.trigger not in (RestartTrigger.AUTOMATIC, RestartTrigger.SCHEDULED):
        return None
    if why := pause_reason(attempt.job, now):
        return End(AttemptState.CANCELED, Why.AUTOMATION_PAUSED(why=why))
    if not automatic(attempt):
        return None
    run = attempt.old_run
    if run is None:
        return None
    refused = attempt.refused_starts.values("engine_job_id")
    later = Run.objects.filter(job=attempt.job_id, number__gt=run.number, state__in=DEAD)
    died_later = later.exclude(engine_job_id__in=refused).exists()
    if died_later or (run.end_seen_at is not None and run.end_seen_at > attempt.created_at):
        return End(AttemptState.CANCELED, Why.DIED_AGAIN())
    return None


def launch_of(attempt: RestartAttempt) -> dict[str, object] | None:
    """Return the launch record of the attempt, or else the job's. None: it is not known, or the operator has it."""
    launch: dict[str, object] | None = attempt.launch or attempt.job.launch
    return None if attempt.resource else launch


def starts_cluster(attempt: RestartAttempt) -> bool:
    """Return whether the attempt's command starts another cluster, because the job's own ends with the job."""
    return is_command(launch_of(attempt)) and has_one_job(attempt.job.cluster)


def cluster_is_over(attempt: RestartAttempt) -> bool:
    """Return whether the job's cluster has ended with the job, so that only another cluster can answer."""
    cluster = attempt.job.cluster
    return is_command(launch_of(attempt)) and cluster.has_ended and not may_live(cluster)


async def jobs_of(client: FlinkClient, *, cluster_over: bool) -> tuple[JobOverview, ...] | None:
    """Return the engine's jobs, or None if its cluster is over and no job manager answers there. Raise EngineError."""
    try:
        return await client.jobs_overview()
    except EngineError as error:
        if cluster_over and shows_no_manager(error):
            return None
        raise


@dataclass(frozen=True)
class EngineRuns:
    """Identifies runs of a job in the engine's list: by its name and all engine job IDs of its runs and attempts.

    `old`: the ID of the run whose end caused the attempt, and when it ended by the engine's clock; None: not known.
    """

    name: str
    ids: frozenset[str]
    own_id: str
    old: tuple[str, datetime | None] | None = None

    def own(self, jobs: Iterable[JobOverview]) -> JobOverview | None:
        """Return the run that this attempt started."""
        return next((job for job in jobs if job.id == self.own_id), None)

    def started_since(self, jobs: Iterable[JobOverview], since: datetime) -> JobOverview | None:
        """Return the newest run of the job that started after `since`, by the engine's clock."""
        started = [job for job in self._others(jobs) if job.started_at >= since - CLOCK_SKEW]
        return max(started, key=lambda job: job.started_at, default=None)

    def old_run_ended_again(self, jobs: Iterable[JobOverview]) -> bool:
        """Return whether the old run came back and ended again, later than the end that caused the attempt."""
        old_id, ended_at = self.old or ("", None)
        return any(job.id == old_id and job.ended_at and ended_at and job.ended_at > ended_at for job in jobs)

    def live(self, jobs: Iterable[JobOverview]) -> JobOverview | None:
        """Return another run of the job that has not ended."""
        return next((job for job in self._others(jobs) if job.state not in TERMINAL_STATES), None)

    def failed(self, jobs: Iterable[JobOverview]) -> tuple[JobOverview, ...]:
        """Return the other runs of the job that have FAILED."""
        return tuple(job for job in self._others(jobs) if job.state == "FAILED")

    def ended_since(self, jobs: Iterable[JobOverview]) -> JobOverview | None:
        """Return another run with an intended end (WISHED) after the end that caused the attempt."""
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


def engine_runs_of(attempt: RestartAttempt) -> EngineRuns:
    runs = Run.objects.filter(job=attempt.job_id).values_list("engine_job_id", flat=True)
    attempts = RestartAttempt.objects.filter(job=attempt.job_id).values_list("engine_job_id", flat=True)
    old = (attempt.old_run.engine_job_id, attempt.old_run.ended_at) if attempt.old_run else None
    return EngineRuns(attempt.job.name, frozenset([*runs, *attempts]), attempt.engine_job_id, old)
