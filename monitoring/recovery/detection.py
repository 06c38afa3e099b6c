"""Whether a job is dead and to be restarted now. Pure; every answer, also to do nothing, has its reason."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.durations import in_words
from monitoring.models import RunState

# Ended by the engine's word, or unknown to an engine that answers. CANCELED and FINISHED are what somebody wished.
DEAD = (RunState.FAILED, RunState.LOST)
# A FAILED seen over REST may be taken back within seconds, after a leader change (FLINK-39704).
HOLD_DOWN = timedelta(seconds=2)
# The last checkpoints of a dead run are read once more before a state is chosen; not for ever.
FINAL_READ = timedelta(seconds=15)
BUDGET_WINDOW = timedelta(hours=1)
FIRST_BACKOFF = timedelta(seconds=5)
LONGEST_BACKOFF = timedelta(minutes=10)
# More jobs than this dying together: it is the cluster.
BRAKE_JOBS = 5
BRAKE_WINDOW = timedelta(seconds=60)
BRAKE_HOLD = timedelta(minutes=15)


@dataclass(frozen=True)
class JobFacts:
    """`automatic_restarts`: when the automatic attempts of the last hour were decided. `deaths_nearby`: jobs of the
    cluster that died within BRAKE_WINDOW of this one, itself included. `awaited_run`: an attempt succeeded, and its
    run has not been polled yet."""

    name: str
    run_state: RunState | None
    died_at: datetime | None
    final_read_done: bool
    cluster_reachable: bool
    auto_restart: bool
    paused: bool
    launch_known: bool
    max_restarts_per_hour: int
    automatic_restarts: tuple[datetime, ...]
    open_attempt: bool
    awaited_run: bool
    deaths_nearby: int


@dataclass(frozen=True)
class Restart:
    reason: str


@dataclass(frozen=True)
class Leave:
    """Nothing to do, or not yet."""

    reason: str


@dataclass(frozen=True)
class NeedsPerson:
    """The job is dead, and Waymark does not restart it by itself: a person is told."""

    reason: str


Verdict = Restart | Leave | NeedsPerson


def decide(facts: JobFacts, now: datetime) -> Verdict:
    if facts.run_state not in DEAD or facts.died_at is None:
        return Leave("its run is not dead by the engine's word")
    if not facts.auto_restart:
        return Leave("automatic restart is off")
    if facts.paused:
        return Leave("its automation is paused")
    if facts.open_attempt:
        return Leave("a restart is under way")
    if not facts.cluster_reachable:
        return Leave("the cluster does not answer")
    if facts.awaited_run:
        return Leave("it was restarted, and its new run has not been polled yet")
    since_death = now - facts.died_at
    if since_death < HOLD_DOWN:
        return Leave("it has been dead for too short a time to be sure")
    if not facts.final_read_done and since_death < FINAL_READ:
        return Leave("its last checkpoints are still being read")
    return _dead(facts, facts.died_at, now)


def _dead(facts: JobFacts, died_at: datetime, now: datetime) -> Verdict:
    if not facts.launch_known:
        return NeedsPerson("Waymark does not know how it was started")
    if facts.deaths_nearby > BRAKE_JOBS and now - died_at < BRAKE_HOLD:
        return NeedsPerson(
            f"{facts.deaths_nearby} jobs of its cluster died within {in_words(BRAKE_WINDOW)} of each other, which is "
            f"the cluster and not the jobs; it is held until {died_at + BRAKE_HOLD:%H:%M %Z}"
        )
    recent = sorted(at for at in facts.automatic_restarts if now - at < BUDGET_WINDOW)
    if len(recent) >= facts.max_restarts_per_hour:
        free = f"; the next one is free at {recent[0] + BUDGET_WINDOW:%H:%M %Z}" if recent else ""
        return NeedsPerson(f"its budget of {facts.max_restarts_per_hour} restarts an hour is used up{free}")
    if recent and now < (next_try := recent[-1] + _backoff(len(recent))):
        return Leave(f"restart {len(recent) + 1} within an hour waits until {next_try:%H:%M:%S %Z}")
    what = "FAILED" if facts.run_state is RunState.FAILED else "no longer known to the engine, which answers"
    return Restart(f"{facts.name} is {what} since {died_at:%H:%M:%S %Z}.")


def _backoff(restarts: int) -> timedelta:
    return min(FIRST_BACKOFF * float(2 ** (restarts - 1)), LONGEST_BACKOFF)
