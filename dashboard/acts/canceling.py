"""Canceling a job: it ends at once, without a savepoint. That it has ended, the next polls say."""

from __future__ import annotations

from django.utils import timezone

from dashboard.acts.intents import Intent
from dashboard.acts.shown import Shown, check_shown
from monitoring import audit
from monitoring.engine.client import FlinkClient
from monitoring.engine.errors import EngineError, Unreachable
from monitoring.engine_calls import Call, call_all
from monitoring.models import AttemptState, Job, Run, RunState
from monitoring.savepoints.request import IN_FLIGHT

_OPEN = [state.value for state in AttemptState if state.open]


class NotCanceled(Exception):
    """Why not; the job goes on as it is."""


class CancelUnknown(Exception):
    """The engine was asked, and its answer did not come."""


def cancel_job(job: Job, by: str, reason: str, intent: Intent, shown: Shown | None = None) -> Run:
    """Have the engine cancel the job's current run. Raises NotCanceled, CancelUnknown, MovedOn.

    Nothing of Waymark's own may be under way for the job: a restart and a savepoint have their own ends. A call that
    comes again is about the run that it was about before, and has nothing more to ask when that ends already.
    """
    if (asked := _asked_before(job, intent)) is not None:
        return asked
    check_shown(job, shown, timezone.now())
    run = _living(job)
    if not job.cluster.reachable:
        raise NotCanceled("The cluster does not answer.")
    if attempt := job.restart_attempts.filter(state__in=_OPEN).first():
        raise NotCanceled(f"Restart {attempt.epoch} is in progress. Cancel the restart, or wait until it ends.")
    if job.savepoints.filter(state__in=IN_FLIGHT).exists():
        raise NotCanceled("A savepoint is in progress. Wait until it ends.")
    # Written before: whoever reads the audit after a crash knows what may have been asked for.
    audit.record(by, "job.cancel", f"job {job.name}", reason, run=run.number, engine_job_id=run.engine_job_id)
    intent.commit(run=run.pk)
    _ask(job, run, by)
    return run


def _asked_before(job: Job, intent: Intent) -> Run | None:
    run = job.runs.filter(pk=intent.earlier["run"]).first() if intent.earlier else None
    ends = run is not None and (run.pk != job.current_run_id or not run.live or run.state == RunState.CANCELLING)
    return run if ends else None


def _living(job: Job) -> Run:
    run = job.current_run
    if run is None:
        raise NotCanceled("The job has never run.")
    if not run.live or run.state == RunState.CANCELLING:
        raise NotCanceled(f"The job is already {run.state}.")
    return run


def _ask(job: Job, run: Run, by: str) -> None:
    async def act(client: FlinkClient) -> None:
        await client.cancel(run.engine_job_id)

    (answer,) = call_all([Call(job.cluster, act)])
    if not isinstance(answer, EngineError):
        audit.record(by, "job.cancel-taken", f"job {job.name}", "", run=run.number)
        return
    audit.record(by, "job.not-canceled", f"job {job.name}", "", run=run.number, why=str(answer))
    if isinstance(answer, Unreachable):
        raise CancelUnknown(f"{answer} Waymark does not know whether the job was canceled.") from answer
    raise NotCanceled(f"{answer} The job keeps running.") from answer
