from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from monitoring.models import RunState
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.detection import (
    BRAKE_HOLD,
    BRAKE_JOBS,
    BRAKE_WINDOW,
    BUDGET_WINDOW,
    FINAL_READ,
    HOLD_DOWN,
    JobFacts,
    Leave,
    NeedsPerson,
    OpenBreaker,
    Restart,
    decide,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DEAD = JobFacts(
    name="flights",
    run_state=RunState.FAILED,
    died_at=NOW - timedelta(seconds=5),
    death_seen_at=NOW - timedelta(seconds=5),
    final_read_done=True,
    cluster_reachable=True,
    auto_restart=True,
    paused=None,
    launch_known=True,
    restart_on_lost=True,
    breaker_opened_at=None,
    breaker_reason="",
    max_restarts_per_hour=3,
    max_restarts_per_day=24,
    automatic_restarts=(),
    of_the_day=0,
    open_attempt=False,
    awaited_run=False,
    deaths_nearby=1,
)


def minutes_ago(*ages: float) -> tuple[datetime, ...]:
    return tuple(NOW - timedelta(minutes=age) for age in ages)


def test_a_dead_job_is_restarted_with_the_time_of_its_death_in_the_reason():
    assert decide(DEAD, NOW) == Restart(Why.FAILED(job="flights", since=DEAD.died_at))


def test_a_lost_job_is_restarted_too():
    assert decide(replace(DEAD, run_state=RunState.LOST), NOW) == Restart(
        Why.UNKNOWN_TO_ENGINE(job="flights", since=DEAD.died_at)
    )


@pytest.mark.parametrize(
    "state", [None, *(state for state in RunState if state not in (RunState.FAILED, RunState.LOST))]
)
def test_a_live_or_stopped_job_is_not_restarted(state):
    assert isinstance(decide(replace(DEAD, run_state=state), NOW), Leave)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"auto_restart": False}, Why.AUTOMATIC_RESTART_OFF()),
        ({"paused": AutomationReason.PAUSED()}, AutomationReason.PAUSED()),
        ({"open_attempt": True}, Why.RESTART_UNDER_WAY()),
        ({"cluster_reachable": False}, Why.CLUSTER_SILENT()),
        ({"awaited_run": True}, Why.NEW_RUN_NOT_POLLED()),
    ],
)
def test_the_obstacle_to_a_restart_is_reported(change, reason):
    assert decide(replace(DEAD, **change), NOW) == Leave(reason)


def test_a_failure_may_be_reverted_during_the_hold_down():
    just = replace(DEAD, death_seen_at=NOW - HOLD_DOWN + timedelta(microseconds=1))
    assert isinstance(decide(just, NOW), Leave)
    assert isinstance(decide(replace(DEAD, death_seen_at=NOW - HOLD_DOWN), NOW), Restart)


def test_the_last_checkpoints_are_awaited_for_a_limited_time():
    unread = replace(DEAD, final_read_done=False)
    assert isinstance(decide(unread, NOW), Leave)
    assert isinstance(decide(replace(unread, death_seen_at=NOW - FINAL_READ), NOW), Restart)


def test_a_job_whose_launch_is_unknown_needs_a_person():
    assert decide(replace(DEAD, launch_known=False), NOW) == NeedsPerson(Why.START_UNKNOWN())


def test_the_budget_is_by_the_sliding_hour():
    used = replace(DEAD, automatic_restarts=minutes_ago(59, 40, 30))
    assert decide(used, NOW) == OpenBreaker(Why.HOURLY_BUDGET_USED(restarts=3))
    assert isinstance(decide(used, NOW + timedelta(minutes=1)), Restart)


def test_restarts_of_a_day_have_a_separate_budget():
    assert isinstance(decide(replace(DEAD, of_the_day=23), NOW), Restart)
    assert decide(replace(DEAD, of_the_day=24), NOW) == OpenBreaker(Why.DAILY_BUDGET_USED(restarts=24))


def test_an_open_breaker_stays_open_until_a_person_closes_it():
    since, reason = NOW - timedelta(days=3), Why.HOURLY_BUDGET_USED(restarts=3)
    opened = replace(DEAD, breaker_opened_at=since, breaker_reason=reason)
    assert decide(opened, NOW) == NeedsPerson(Why.BREAKER_OPEN(since=since, reason=reason))


def test_a_lost_job_waits_for_a_person_if_its_automation_is_configured_so():
    lost = replace(DEAD, run_state=RunState.LOST, restart_on_lost=False)
    assert isinstance(decide(lost, NOW), NeedsPerson)
    assert isinstance(decide(replace(lost, run_state=RunState.FAILED), NOW), Restart)


def test_jobs_that_died_together_are_restarted_at_different_times():
    last = NOW.replace(microsecond=500_000)
    tired = replace(DEAD, death_seen_at=NOW - timedelta(seconds=60), automatic_restarts=(last - timedelta(seconds=5),))
    assert isinstance(decide(tired, NOW + timedelta(seconds=0.5)), Leave)
    assert isinstance(decide(tired, NOW + timedelta(seconds=1.01)), Restart)


def test_how_far_apart_is_by_the_last_restart_and_not_by_an_earlier_one_that_they_may_share():
    shared, last = NOW - timedelta(minutes=30), NOW.replace(microsecond=500_000) - timedelta(seconds=11)
    tired = replace(DEAD, automatic_restarts=(shared, last))
    assert isinstance(decide(tired, NOW + timedelta(seconds=0.49)), Leave)
    assert isinstance(decide(tired, NOW + timedelta(seconds=0.5)), Restart)


def test_the_hour_is_open_at_its_start():
    old = replace(DEAD, max_restarts_per_hour=1, automatic_restarts=(NOW - BUDGET_WINDOW,))
    assert isinstance(decide(old, NOW), Restart)


def test_a_budget_of_nothing_restarts_nothing():
    assert isinstance(decide(replace(DEAD, max_restarts_per_hour=0), NOW), OpenBreaker)


@pytest.mark.parametrize(("restarts", "wait_s"), [(1, 5), (2, 10), (3, 20)])
def test_each_restart_within_an_hour_waits_twice_as_long(restarts, wait_s):
    last = NOW - timedelta(seconds=wait_s)
    times = (last, *minutes_ago(*range(30, 30 + restarts - 1)))
    tired = replace(DEAD, max_restarts_per_hour=10, automatic_restarts=times)
    assert isinstance(decide(tired, NOW), Restart)
    assert isinstance(decide(tired, NOW - timedelta(microseconds=1)), Leave)


def test_jobs_that_die_together_are_held_and_a_person_is_notified():
    together = replace(DEAD, deaths_nearby=BRAKE_JOBS + 1)
    assert decide(together, NOW) == NeedsPerson(
        Why.CLUSTER_OUTAGE(jobs=BRAKE_JOBS + 1, within=BRAKE_WINDOW, until=DEAD.death_seen_at + BRAKE_HOLD)
    )
    assert isinstance(decide(replace(DEAD, deaths_nearby=BRAKE_JOBS), NOW), Restart)
    assert isinstance(decide(together, NOW + BRAKE_HOLD), Restart)


def test_the_hold_down_counts_from_the_detection_for_any_engine_clock():
    behind = replace(DEAD, died_at=NOW - timedelta(minutes=5), death_seen_at=NOW)
    assert decide(behind, NOW) == Leave(Why.HELD_DOWN())
    ahead = replace(DEAD, died_at=NOW + timedelta(minutes=5))
    assert isinstance(decide(ahead, NOW), Restart)


def test_a_clock_that_was_set_back_delays_nothing():
    unread = replace(DEAD, final_read_done=False, death_seen_at=NOW + timedelta(hours=1))
    assert isinstance(decide(unread, NOW), Restart)
    assert isinstance(decide(replace(DEAD, automatic_restarts=(NOW + timedelta(hours=1),)), NOW), Restart)
    many = replace(DEAD, deaths_nearby=BRAKE_JOBS + 1, death_seen_at=NOW + timedelta(hours=1))
    assert isinstance(decide(many, NOW), Restart)
