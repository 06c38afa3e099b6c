"""One cycle of recovery: look at the dead, decide, move what was decided."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import assert_never

from monitoring import audit
from monitoring.models import Job, RestartTrigger
from monitoring.recovery.attempt import AttemptOpen, open_attempt
from monitoring.recovery.detection import Leave, NeedsPerson, Restart, decide
from monitoring.recovery.evidence import dead_jobs, facts_of
from monitoring.recovery.moving import move_attempts
from monitoring.recovery.telling import all_clear, tell


def advance(now: datetime) -> str:
    """Decide restarts of dead jobs and move every open attempt; says in a sentence what it did and why."""
    decisions = [said for job in dead_jobs() if (said := _decide(job, now))]
    moved = move_attempts(now)
    back = all_clear(now)
    return " ".join([*decisions, *_moved(moved), *([f"{back} back again."] if back else [])]) or "No job is dead."


def _decide(job: Job, now: datetime) -> str:
    verdict = decide(facts_of(job, now), now)
    match verdict:
        case Restart(reason):
            return _open(job, reason, now)
        case NeedsPerson(reason):
            tell(job, f"{job.name} is dead and is not restarted: {reason}.", {}, now)
            return f"{job.name} needs a person: {reason}."
        case Leave(reason):
            return f"{job.name} is left: {reason}."
        case _:
            assert_never(verdict)


def _open(job: Job, reason: str, now: datetime) -> str:
    try:
        attempt = open_attempt(job, RestartTrigger.AUTOMATIC, reason, audit.AUTOMATION, now)
    except AttemptOpen as taken:
        return str(taken)
    return f"Restart {attempt.epoch} of {job.name} decided: {reason}"


def _moved(outcome: Counter[str]) -> list[str]:
    done = ", ".join(f"{count} {what}" for what, count in outcome.items())
    return [f"Restarts: {done}."] if done else []
