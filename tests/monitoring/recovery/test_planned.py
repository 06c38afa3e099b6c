"""A recovery tick also checks again when a hold-down ends or the last checkpoints were read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from monitoring.models import AttemptState, Job, RestartAttempt, Run
from monitoring.reasons.recovery import RecoveryReason
from monitoring.reasons.report import CycleReport
from monitoring.recovery import planned
from monitoring.recovery.detection import HOLD_DOWN
from monitoring.recovery.planned import LOOK_EVERY, tick

pytestmark = pytest.mark.django_db
BEAT = timedelta(seconds=1)


class Clock:
    """A clock that moves only in waits. `meanwhile` has the functions to call during the nth wait."""

    def __init__(self, start: datetime) -> None:
        self.at = start
        self.waits: list[float] = []
        self.meanwhile: dict[int, Callable[[], object]] = {}

    def now(self) -> datetime:
        return self.at

    def wait(self, seconds: float) -> None:
        self.waits.append(round(seconds, 6))
        self.at += timedelta(seconds=seconds)
        self.meanwhile.get(len(self.waits), lambda: None)()

    def tick(self) -> CycleReport:
        return tick(self.now, BEAT, self.wait)


@pytest.fixture
def clock(now: datetime) -> Clock:
    return Clock(now)


def died(job: Job, at: datetime, *, read: bool = True) -> None:
    Run.objects.filter(pk=job.current_run_id).update(ended_at=at, end_seen_at=at, final_read_done=read)


def test_the_end_of_a_hold_down_is_processed_on_time(job: Job, clock: Clock, now: datetime) -> None:
    died(job, now - HOLD_DOWN + timedelta(milliseconds=300))
    assert [done.code for done in clock.tick().done][:1] == [RecoveryReason.RESTART_DECIDED]
    assert RestartAttempt.objects.get().created_at == now + timedelta(milliseconds=300)
    assert clock.waits[0] == 0.3


def test_a_hold_down_that_ends_after_the_next_tick_is_processed_by_that_tick(
    job: Job, clock: Clock, now: datetime
) -> None:
    died(job, now - HOLD_DOWN + BEAT)
    clock.tick()
    assert not RestartAttempt.objects.exists()
    assert clock.waits == []


def test_a_restart_follows_at_once_when_the_last_checkpoints_were_read(job: Job, clock: Clock, now: datetime) -> None:
    died(job, now - 2 * HOLD_DOWN, read=False)
    clock.meanwhile[4] = lambda: Run.objects.update(final_read_done=True)
    clock.tick()
    assert RestartAttempt.objects.get().created_at == now + 4 * LOOK_EVERY


def test_only_unread_deaths_are_processed_while_they_are_read(
    job: Job, clock: Clock, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    died(job, now - 2 * HOLD_DOWN, read=False)
    looks: list[datetime] = []
    monkeypatch.setattr(planned, "advance", lambda at: looks.append(at) or CycleReport())
    assert clock.tick() == CycleReport()
    assert looks == [now]
    assert len(clock.waits) == 9


def test_a_step_of_a_restart_is_taken_at_its_due_time(job: Job, clock: Clock, now: datetime, job_manager) -> None:
    job_manager.starts_as = "CREATED"
    died(job, now - 2 * HOLD_DOWN)
    clock.tick()
    attempt = RestartAttempt.objects.get()
    assert attempt.state == AttemptState.WAITING
    due = attempt.next_step_at
    assert due is not None
    clock.at = due - BEAT / 2
    clock.waits.clear()
    clock.tick()
    attempt.refresh_from_db()
    assert clock.waits == [0.5]
    assert attempt.next_step_at is not None
    assert attempt.next_step_at > due


def test_a_tick_without_due_work_does_not_wait(job: Job, clock: Clock, now: datetime) -> None:
    Job.objects.update(auto_restart=False)
    died(job, now)
    assert clock.tick() == CycleReport()
    assert clock.waits == []


def test_a_process_runs_one_waiting_tick_at_a_time(job: Job, clock: Clock, now: datetime) -> None:
    died(job, now - HOLD_DOWN + timedelta(milliseconds=300))
    second = Clock(now)
    clock.meanwhile[1] = second.tick
    clock.tick()
    assert second.waits == []
    assert RestartAttempt.objects.count() == 1
