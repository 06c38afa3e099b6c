"""Decide whether a job is dead and must be restarted now. Pure; every decision has a reason, even to do nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.models import RunState
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why

# The engine reports FAILED, or answers and does not know the job (LOST). CANCELED and FINISHED are intended ends.
DEAD = (RunState.FAILED, RunState.LOST)
# After a leader change, REST may report FAILED for a few seconds although the job continues (FLINK-39704).
HOLD_DOWN = timedelta(seconds=2)
# How long a decision waits until the last checkpoints of a dead run are read once more.
FINAL_READ = timedelta(seconds=15)
BUDGET_WINDOW = timedelta(hours=1)
DAY = timedelta(days=1)
# A run that lived this long and completed this many checkpoints has recovered: earlier restarts no longer count.
HEALTHY_AFTER = timedelta(minutes=10)
HEALTHY_CHECKPOINTS = 2
FIRST_BACKOFF = timedelta(seconds=5)
LONGEST_BACKOFF = timedelta(minutes=10)
# If more jobs than this die together, the cluster is the cause.
BRAKE_JOBS = 5
BRAKE_WINDOW = timedelta(seconds=60)
BRAKE_HOLD = timedelta(minutes=15)


@dataclass(frozen=True)
class JobFacts:
    """The facts on which a restart is decided.

    `automatic_restarts`: the times of automatic attempts of the last day since the budget was last refilled;
    `of_the_day`: the number of all of that day. `paused`: the reason of a pause. `deaths_nearby`: jobs of the cluster
    that died within BRAKE_WINDOW of this one, itself included. `awaited_run`: an attempt has started a run that was not
    polled yet. `cause`: the exception of the failure, "" if the engine reported none. `died_at` is by the engine's
    clock, which may be wrong; waits count from `death_seen_at`, by Waymark's clock. `restore_refused`: the job manager
    refused a restore that no person had requested.
    """

    name: str
    run_state: RunState | None
    died_at: datetime | None
    death_seen_at: datetime | None
    final_read_done: bool
    cluster_reachable: bool
    auto_restart: bool
    paused: Reason | None
    launch_known: bool
    restart_on_lost: bool
    breaker_opened_at: datetime | None
    breaker_reason: Reason | str
    max_restarts_per_hour: int
    max_restarts_per_day: int
    automatic_restarts: tuple[datetime, ...]
    of_the_day: int
    open_attempt: bool
    awaited_run: bool
    deaths_nearby: int
    cause: str = ""
    restore_refused: bool = False


@dataclass(frozen=True)
class Restart:
    reason: Reason


@dataclass(frozen=True)
class Leave:
    """Do nothing, or wait."""

    reason: Reason


@dataclass(frozen=True)
class NeedsPerson:
    """The job is dead and Waymark does not restart it: notify a person."""

    reason: Reason


@dataclass(frozen=True)
class OpenBreaker:
    """The job was restarted too often: notify a person, and do nothing more until a person closes the breaker."""

    reason: Reason


Decision = Restart | Leave | NeedsPerson | OpenBreaker


def decide(facts: JobFacts, now: datetime) -> Decision:
    if facts.run_state not in DEAD or facts.died_at is None or facts.death_seen_at is None:
        return Leave(Why.NOT_DEAD())
    if not facts.auto_restart:
        return Leave(Why.AUTOMATIC_RESTART_OFF())
    if facts.paused is not None:
        return Leave(facts.paused)
    if facts.open_attempt:
        return Leave(Why.RESTART_UNDER_WAY())
    if not facts.cluster_reachable:
        return Leave(Why.CLUSTER_SILENT())
    if facts.awaited_run:
        return Leave(Why.NEW_RUN_NOT_POLLED())
    if within(HOLD_DOWN, facts.death_seen_at, now):
        return Leave(Why.HELD_DOWN())
    if not facts.final_read_done and within(FINAL_READ, facts.death_seen_at, now):
        return Leave(Why.CHECKPOINTS_NOT_READ())
    return _dead(facts, facts.died_at, facts.death_seen_at, now)


def within(limit: timedelta, since: datetime, now: datetime) -> bool:
    """Return whether `since` was less than `limit` ago. A time in the future, from a wrong clock, gives False."""
    return timedelta() <= now - since < limit


def _dead(facts: JobFacts, died_at: datetime, seen_at: datetime, now: datetime) -> Decision:
    if not facts.launch_known:
        return NeedsPerson(Why.START_UNKNOWN())
    if facts.restore_refused:
        return NeedsPerson(Why.ROWS_WRITTEN_AGAIN())
    if facts.run_state is RunState.LOST and not facts.restart_on_lost:
        return NeedsPerson(Why.LOST())
    if facts.breaker_opened_at is not None:
        return NeedsPerson(Why.BREAKER_OPEN(since=facts.breaker_opened_at, reason=facts.breaker_reason))
    held_until = seen_at + BRAKE_HOLD
    if facts.deaths_nearby > BRAKE_JOBS and within(BRAKE_HOLD, seen_at, now):
        return NeedsPerson(Why.CLUSTER_OUTAGE(jobs=facts.deaths_nearby, within=BRAKE_WINDOW, until=held_until))
    return _by_budget(facts, died_at, now)


def _by_budget(facts: JobFacts, died_at: datetime, now: datetime) -> Decision:
    recent = sorted(at for at in facts.automatic_restarts if within(BUDGET_WINDOW, at, now))
    if len(recent) >= facts.max_restarts_per_hour:
        return OpenBreaker(Why.HOURLY_BUDGET_USED(restarts=facts.max_restarts_per_hour))
    if facts.of_the_day >= facts.max_restarts_per_day:
        return OpenBreaker(Why.DAILY_BUDGET_USED(restarts=facts.max_restarts_per_day))
    if recent and now < (next_try := recent[-1] + _backoff(len(recent), recent[-1])):
        return Leave(Why.BACKOFF(number=len(recent) + 1, until=next_try))
    is_failed, cause = facts.run_state is RunState.FAILED, facts.cause.rstrip(".")
    if not cause:
        return Restart((Why.FAILED if is_failed else Why.UNKNOWN_TO_ENGINE)(job=facts.name, since=died_at))
    code = Why.FAILED_WITH if is_failed else Why.UNKNOWN_TO_ENGINE_WITH
    return Restart(code(job=facts.name, since=died_at, cause=cause))


def _backoff(restarts: int, last: datetime) -> timedelta:
    """Return the wait, which doubles with each restart.

    The last restart's microseconds extend it by up to a fifth, so that jobs that died together restart at different
    times.
    """
    jitter = 1 + last.microsecond / 1_000_000 / 5
    return min(FIRST_BACKOFF * float(2 ** (restarts - 1)), LONGEST_BACKOFF) * jitter
