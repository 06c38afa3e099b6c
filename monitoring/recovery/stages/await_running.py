"""Waits until the engine says that the new run is RUNNING, and until it was polled."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.engine.answers import TERMINAL_STATES, JobOverview
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError
from monitoring.launches import Launched, remember
from monitoring.models import AttemptState, LaunchOrigin, RestartAttempt, Run
from monitoring.recovery.stages.base import Act, End, Next, Outcome, Wait, launch_of, lives_of, write

# A run that runs is linked to the attempt once a poll has stored it; not waited for longer than this.
LINK_WITHIN = timedelta(seconds=30)


@dataclass(frozen=True)
class Seen:
    """`failure`: why it FAILED, as the engine says."""

    job: JobOverview | None
    failure: str = ""


class AwaitRunning:
    step = "Wait until it runs"

    def plan(self, attempt: RestartAttempt, now: datetime) -> Act | Next | Wait | End:
        lives = lives_of(attempt)

        async def act(client: FlinkClient) -> object:
            job = lives.own(await client.jobs_overview())
            if job is None or job.state != "FAILED":
                return Seen(job)
            exceptions = await client.exceptions(job.id)
            return Seen(job, exceptions[0].message if exceptions else "")

        return act

    def conclude(self, attempt: RestartAttempt, answer: object, now: datetime) -> Outcome:
        match answer:
            case Seen(None):
                return Wait(f"The engine does not name {attempt.engine_job_id}.")
            case Seen(JobOverview(state="RUNNING" | "FINISHED" as state)):
                return _runs(attempt, state, now)
            case Seen(JobOverview(state=state), failure) if state in TERMINAL_STATES:
                why = failure or "the engine gives no reason."
                return End(AttemptState.FAILED, f"The new run is {state}: {why}")
            case Seen(JobOverview(state=state)):
                return Wait(f"The new run is {state}.")
            case EngineError():
                return Wait(str(answer))
            case _:
                raise TypeError(f"{type(answer).__name__} is no answer about a run")


def _runs(attempt: RestartAttempt, state: str, now: datetime) -> Outcome:
    run = (
        Run.objects.filter(job=attempt.job_id, engine_job_id=attempt.engine_job_id)
        .select_related("job")
        .order_by("-number")
        .first()
    )
    if run is None and now - (attempt.launched_at or now) < LINK_WITHIN:
        return Wait(f"The new run is {state}; it is about to be read for the first time.")
    write(attempt, new_run_id=run.pk if run else None)
    if run is not None and run.launch_version_id is None and (spec := launch_of(attempt)) is not None:
        # An engine that cannot say how it started a job: what we sent is how.
        remember([Launched(run, spec)], LaunchOrigin.RESTART, attempt.requested_by, now)
    return End(AttemptState.SUCCEEDED, f"The new run is {state}.")
