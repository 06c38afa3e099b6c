"""Start another run of an ended job with the same program and settings, from the state of the last run.

The page, the REST API, `manage.py job run-again` and the schedule of runs use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.models import Job, RestartAttempt, RestartTrigger, Run, RunState
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.attempt import AttemptOpen
from monitoring.recovery.candidates import State
from monitoring.recovery.launching import BadLaunch, check_launch
from monitoring.recovery.manual import RestartRefused, open_restart, require_own
from monitoring.recovery.states import known_states, restore_candidates
from monitoring.savepoints.history import plain_path


@dataclass(frozen=True)
class Origin:
    """The state that a run starts from. `path` is "" if the job rightly has no state.

    `state` is the snapshot at `path`, None if it is not in the history.
    """

    path: str
    state: State | None = None

    @property
    def reason(self) -> Reason | str:
        return self.state.reason if self.state else self.path or Why.NO_BATCH_YET()


def run_again(
    job: Job,
    by: str,
    now: datetime,
    trigger: RestartTrigger = RestartTrigger.AGAIN,
    due_at: datetime | None = None,
) -> RestartAttempt:
    """Decide another run of `job`. `due_at` is the time of its schedule, None if `by` requested the run.

    Raises:
        RestartRefused: the job runs, or its state is not known.
        BadLaunch: the launch record is invalid.
        AttemptOpen: another restart is in progress.
    """
    check_launch(job.launch)
    require_own(job)
    origin = origin_of_next_run(job)
    state, what = origin.state, {"job": job.name, "state": origin.reason}
    return open_restart(
        job,
        Why.RUN_SCHEDULED(due=due_at, **what) if due_at else Why.RUN_ASKED(by=by, **what),
        by,
        now,
        trigger=trigger,
        restore_path=origin.path,
        restore_is_savepoint=state.is_savepoint if state else None,
        restore_state_at=state.taken_at if state else None,
        savepoint=job.savepoints.filter(pk=state.savepoint_row).first() if state and state.savepoint_row else None,
        start_empty=not origin.path,
    )


def origin_of_next_run(job: Job) -> Origin:
    """Return the state that the next run starts from. Raise RestartRefused."""
    run = job.current_run
    if run is None:
        raise RestartRefused("state", "not known", Why.NEVER_RAN())
    if run.live:
        raise RestartRefused("state", str(run.state), Why.STILL_RUNS())
    if run.state == RunState.FINISHED and run.outcome.get("saved"):
        return _of_end(job, run)
    newest = next(iter(restore_candidates(job)), None)
    if newest is None:
        raise RestartRefused("state", str(run.state), Why.NO_STATE_TO_CONTINUE())
    return Origin(newest.path, newest)


def _of_end(job: Job, run: Run) -> Origin:
    """Return the state with which the run ended, from the path that the engine reported."""
    path = str(run.outcome.get("state") or "")
    known = (state for state in known_states(job) if path and plain_path(state.path) == plain_path(path))
    # If a checkpoint and a savepoint have the same path, choose the savepoint: people know it by that name.
    return Origin(path, max(known, key=lambda state: state.savepoint_row is not None, default=None))


__all__ = ["AttemptOpen", "BadLaunch", "Origin", "RestartRefused", "origin_of_next_run", "run_again"]
