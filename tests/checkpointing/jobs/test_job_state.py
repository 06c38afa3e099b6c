from __future__ import annotations

import pytest

from checkpointing.clock import ManualClock
from checkpointing.jobs.job_record import MOVES_KEPT, JobState
from checkpointing.model.status import TRANSITIONS, IllegalTransition, JobStatus


def test_every_move_is_recorded_with_its_time_and_cause() -> None:
    clock = ManualClock(1000)
    state = JobState(clock, "submitted")
    clock.advance(1)
    state.move(JobStatus.CREATED, "ready")

    assert [(move.target.value, move.at_ms, move.cause) for move in state.moves] == [
        ("INITIALIZING", 1000, "submitted"),
        ("CREATED", 2000, "ready"),
    ]
    assert state.timestamps[JobStatus.CREATED] == 2000
    assert state.timestamps[JobStatus.RUNNING] == 0


@pytest.mark.parametrize("target", [s for s in JobStatus if s not in TRANSITIONS[JobStatus.INITIALIZING]])
def test_a_move_that_the_table_does_not_have_changes_nothing(target: JobStatus) -> None:
    state = JobState(ManualClock(), "submitted")

    with pytest.raises(IllegalTransition):
        state.move(target, "no")

    assert state.status is JobStatus.INITIALIZING
    assert len(state.moves) == 1


def test_only_a_globally_terminal_status_ends_the_job() -> None:
    suspended, failed = JobState(ManualClock(), ""), JobState(ManualClock(5), "")
    suspended.move(JobStatus.SUSPENDED, "leadership lost")
    failed.move(JobStatus.FAILED, "no")

    assert suspended.ended_ms is None
    assert failed.ended_ms == 5


def test_a_job_that_restarts_for_months_keeps_a_bounded_record() -> None:
    state = JobState(ManualClock(), "submitted")
    state.move(JobStatus.CREATED, "")
    for _ in range(MOVES_KEPT):
        for target in (JobStatus.RUNNING, JobStatus.FAILING, JobStatus.RESTARTING, JobStatus.CREATED):
            state.move(target, "")

    assert len(state.moves) == MOVES_KEPT
    assert state.started_ms > 0
