"""Whether a job is dead and to be restarted now. Pure; every answer, also to do nothing, has its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
DAY = timedelta(days=1)
# A run that lived so long, with so many completed checkpoints, has recovered: what was before it is not counted.
HEALTHY_AFTER = timedelta(minutes=10)
HEALTHY_CHECKPOINTS = 2
FIRST_BACKOFF = timedelta(seconds=5)
LONGEST_BACKOFF = timedelta(minutes=10)
# More jobs than this dying together: it is the cluster.
BRAKE_JOBS = 5
BRAKE_WINDOW = timedelta(seconds=60)
BRAKE_HOLD = timedelta(minutes=15)


@dataclass(frozen=True)
class JobFacts:
    """`automatic_restarts`: when the automatic attempts of the last day were decided, but for those before the budget
    was last refilled; `of_the_day`: how many they were in all. `paused`: why, "" when it is not. `deaths_nearby`: jobs
    of the cluster that died within BRAKE_WINDOW of this one, itself included. `awaited_run`: an attempt has started a
    run that was not polled yet. `cause`: the exception that killed it, "" when the engine told none. `died_at` is by
    the engine's clock, which may be wrong; `death_seen_at` is by ours: waiting is counted from that. `restore_refused`:
    its job manager refused a restore that no person had asked for."""

    name: str
    run_state: RunState | None
    died_at: datetime | None
    death_seen_at: datetime | None
    final_read_done: bool
    cluster_reachable: bool
    auto_restart: bool
    paused: str
    launch_known: bool
    restart_on_lost: bool
    breaker_opened_at: datetime | None
    breaker_reason: str
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
    reason: str


@dataclass(frozen=True)
class Leave:
    """Nothing to do, or not yet."""

    reason: str


@dataclass(frozen=True)
class NeedsPerson:
    """The job is dead, and Waymark does not restart it by itself: a person is told. `evidence`: why, as a word (`why`)
    and its numbers, for messages in other languages."""

    reason: str
    evidence: Mapping[str, object] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class OpenBreaker:
    """It was restarted too often: a person is told, and nothing more happens until one closes the breaker.
    `evidence` as of NeedsPerson."""

    reason: str
    evidence: Mapping[str, object] = field(default_factory=dict, compare=False)


Decision = Restart | Leave | NeedsPerson | OpenBreaker


def decide(facts: JobFacts, now: datetime) -> Decision:
    if facts.run_state not in DEAD or facts.died_at is None or facts.death_seen_at is None:
        return Leave("its run is not dead by the engine's word")
    if not facts.auto_restart:
        return Leave("automatic restart is off")
    if facts.paused:
        return Leave(facts.paused)
    if facts.open_attempt:
        return Leave("a restart is under way")
    if not facts.cluster_reachable:
        return Leave("the cluster does not answer")
    if facts.awaited_run:
        return Leave("it was restarted, and its new run has not been polled yet")
    if within(HOLD_DOWN, facts.death_seen_at, now):
        return Leave("it has been dead for too short a time to be sure")
    if not facts.final_read_done and within(FINAL_READ, facts.death_seen_at, now):
        return Leave("its last checkpoints are still being read")
    return _dead(facts, facts.died_at, facts.death_seen_at, now)


def within(limit: timedelta, since: datetime, now: datetime) -> bool:
    """A moment that is still to come was told by a clock that has been set back since: nothing waits for that."""
    return timedelta() <= now - since < limit


def _dead(facts: JobFacts, died_at: datetime, seen_at: datetime, now: datetime) -> Decision:
    if not facts.launch_known:
        return NeedsPerson("Waymark does not know how it was started", {"why": "start_unknown"})
    if facts.restore_refused:
        return NeedsPerson(
            "a restore would write rows a second time, and execution.sinks.after-restore leaves that to you",
            {"why": "written_again"},
        )
    if facts.run_state is RunState.LOST and not facts.restart_on_lost:
        return NeedsPerson(
            "the engine, which answers, does not know it any more, and its automation leaves that to you",
            {"why": "lost"},
        )
    if facts.breaker_opened_at is not None:
        return NeedsPerson(
            breaker_is_open(facts.breaker_opened_at, facts.breaker_reason),
            {"why": "breaker", "since": facts.breaker_opened_at.isoformat()},
        )
    if facts.deaths_nearby > BRAKE_JOBS and within(BRAKE_HOLD, seen_at, now):
        return NeedsPerson(
            f"{facts.deaths_nearby} jobs of its cluster died within {in_words(BRAKE_WINDOW)} of each other, which is "
            f"the cluster and not the jobs; it is held until {seen_at + BRAKE_HOLD:%H:%M %Z}",
            {"why": "cluster", "jobs": facts.deaths_nearby, "until": (seen_at + BRAKE_HOLD).isoformat()},
        )
    return _by_budget(facts, died_at, now)


def breaker_is_open(since: datetime, reason: str) -> str:
    return f"its breaker is open since {since:%Y-%m-%d %H:%M %Z}, {reason}; close it to go on"


def _by_budget(facts: JobFacts, died_at: datetime, now: datetime) -> Decision:
    recent = sorted(at for at in facts.automatic_restarts if within(BUDGET_WINDOW, at, now))
    if len(recent) >= facts.max_restarts_per_hour:
        return OpenBreaker(
            f"its budget of {facts.max_restarts_per_hour} restarts an hour is used up",
            {"why": "budget", "restarts": facts.max_restarts_per_hour, "within_s": 3_600},
        )
    if facts.of_the_day >= facts.max_restarts_per_day:
        return OpenBreaker(
            f"its budget of {facts.max_restarts_per_day} restarts a day is used up",
            {"why": "budget", "restarts": facts.max_restarts_per_day, "within_s": 86_400},
        )
    if recent and now < (next_try := recent[-1] + _backoff(len(recent), recent[-1])):
        return Leave(f"restart {len(recent) + 1} within an hour waits until {next_try:%H:%M:%S %Z}")
    what = "FAILED" if facts.run_state is RunState.FAILED else "no longer known to the engine, which answers"
    return Restart(f"{facts.name} is {what} since {died_at:%H:%M:%S %Z}{_of(facts.cause)}.")


def _of(cause: str) -> str:
    return f": {cause.rstrip('.')}" if cause else ""


def _backoff(restarts: int, last: datetime) -> timedelta:
    """Doubling, and up to a fifth longer: by the last restart's microseconds, so that jobs which died together part."""
    jitter = 1 + last.microsecond / 1_000_000 / 5
    return min(FIRST_BACKOFF * float(2 ** (restarts - 1)), LONGEST_BACKOFF) * jitter
