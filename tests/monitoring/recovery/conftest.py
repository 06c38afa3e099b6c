from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from monitoring.models import AttemptState, Job, RestartAttempt, RunState, Savepoint
from monitoring.recovery.cycle import advance
from monitoring.recovery.moving import _Cycle
from monitoring.savepoints import cycle as savepoints

LAUNCH = {
    "kind": "waymark",
    "jar_id": "program.py",
    "entry_class": "program:main",
    "program_args": ["--input", "/in"],
    "parallelism": 2,
    "configuration": {"execution.checkpointing.interval": "5000"},
}


@pytest.fixture
def job(rows, job_manager) -> Job:
    """Return a job that died five seconds ago and has one checkpoint to restart from."""
    job = rows.job(
        rows.cluster(rest_url=job_manager.url),
        name="flights",
        launch=LAUNCH,
        auto_restart=True,
        max_restarts_per_hour=6,
    )
    run = rows.run(job, RunState.FAILED, final_read_done=True)
    rows.checkpoint(run, 7, external_path="file:/chk/7")
    job_manager.add(run.engine_job_id, "flights", "FAILED")
    return job


@pytest.fixture
def cycles_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the duration of cycles. On a busy machine it may exceed the second that a test leaves before a limit."""
    monkeypatch.setattr(_Cycle, "_moment", property(lambda cycle: cycle._now))


@pytest.fixture
def go_on(poll) -> Callable[..., RestartAttempt]:
    """Return a function that runs cycles until one more attempt has ended.

    The cycles are two seconds apart, and a poll precedes each one.
    """

    def run_cycles(job: Job, now: datetime, limit: int = 40, step_s: float = 2.0) -> RestartAttempt:
        moment = now
        ended_before = RestartAttempt.objects.filter(job=job, ended_at__isnull=False).count()
        for _ in range(limit):
            poll(job, moment)
            advance(moment)
            last = RestartAttempt.objects.filter(job=job).order_by("-epoch").first()
            if last is not None and last.epoch > ended_before and not AttemptState(last.state).open:
                return last
            moment += timedelta(seconds=step_s)
        raise AssertionError(f"still {last.state if last else 'undecided'}: {last and list(last.steps.all())}")

    return run_cycles


@pytest.fixture
def live(job: Job, job_manager) -> Job:
    """Return the same job with a current run that lives."""
    job_manager.jobs[job.current_run.engine_job_id].state = "RUNNING"
    job.current_run.state, job.current_run.ended_at = RunState.RUNNING, None
    job.current_run.save()
    return job


@pytest.fixture
def savepoint(rows, job: Job) -> Savepoint:
    """Return a savepoint that was requested 15 minutes ago and has completed."""
    return Savepoint.objects.create(
        job=job, run=job.current_run, origin="manual", state="completed", path="file:/sp/1", requested_at=rows.ago(900)
    )


@pytest.fixture
def settle(poll) -> Callable[[RestartAttempt, datetime], RestartAttempt]:
    """Return a function that runs cycles of savepoints and recovery until the attempt has ended.

    The cycles are two seconds apart, and a poll precedes each one.
    """

    def run_cycles(attempt: RestartAttempt, now: datetime) -> RestartAttempt:
        for second in range(0, 60, 2):
            moment = now + timedelta(seconds=second)
            poll(attempt.job, moment)
            savepoints.advance(moment)
            advance(moment)
            attempt.refresh_from_db()
            if attempt.ended_at:
                return attempt
        raise AssertionError(list(attempt.steps.all()))

    return run_cycles
