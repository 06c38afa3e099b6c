"""One cycle of recovery: look at the dead, decide, move what was decided."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import assert_never

from django.db import transaction

from monitoring import audit
from monitoring.models import Job, RestartTrigger
from monitoring.pauses import active as pauses_now
from monitoring.pauses import end_of_jobs
from monitoring.recovery.attempt import AttemptOpen, open_attempt
from monitoring.recovery.breaker import open_breaker
from monitoring.recovery.decisions import record
from monitoring.recovery.detection import JobFacts, Leave, NeedsPerson, OpenBreaker, Restart, breaker_is_open, decide
from monitoring.recovery.evidence import dead_jobs, facts_of
from monitoring.recovery.moving import move_attempts
from monitoring.recovery.run_schedule import start_due_runs
from monitoring.recovery.telling import all_clear, tell
from monitoring.recovery.traces import remove_traces


def advance(now: datetime) -> str:
    """Decide restarts of dead jobs and move every open attempt; says in a sentence what it did and why.

    A cycle that changed nothing says so first: "No ...".
    """
    resumed = [f"The pause of {name} is over." for name in end_of_jobs(now)]
    done, left = _decide_all(now)
    done = resumed + done + start_due_runs(now) + _moved(move_attempts(now))
    remove_traces()
    if back := all_clear(now):
        done.append(f"{back} back again.")
    if not done:
        return " ".join(["No restart now:", *left]) if left else "No job is dead."
    return " ".join([*done, *left])


def _decide_all(now: datetime) -> tuple[list[str], list[str]]:
    """What was decided or told, and why the other dead jobs are left as they are."""
    done: list[str] = []
    left: list[str] = []
    pauses = list(pauses_now(now))
    for job in dead_jobs():
        facts = facts_of(job, now, pauses)
        decision = decide(facts, now)
        if isinstance(decision, Restart):
            done.append(_open(job, decision, facts, now))
            continue
        record(job, decision, facts, now)
        match decision:
            case OpenBreaker(reason) if open_breaker(job, reason, now):
                why = breaker_is_open(now, reason)
                evidence = {**decision.evidence, "since": now.isoformat(), "cause": facts.cause}
                tell(job, _not_restarted(job, why, facts.cause), evidence, now)
                done.append(f"The breaker of {job.name} opened: {reason}.")
            case NeedsPerson(reason) | OpenBreaker(reason):
                told = tell(
                    job, _not_restarted(job, reason, facts.cause), {**decision.evidence, "cause": facts.cause}, now
                )
                (done if told else left).append(f"{job.name} needs a person: {reason}.")
            case Leave(reason):
                left.append(f"{job.name} is left: {reason}.")
            case _:
                assert_never(decision)
    return done, left


def _not_restarted(job: Job, why: str, cause: str) -> str:
    died_of = f" It died of {cause.rstrip('.')}." if cause else ""
    return f"{job.name} is dead and is not restarted: {why}.{died_of}"


def _open(job: Job, decision: Restart, facts: JobFacts, now: datetime) -> str:
    """The decision and its attempt are written together: one for each other."""
    try:
        with transaction.atomic():
            attempt = open_attempt(job, RestartTrigger.AUTOMATIC, decision.reason, audit.AUTOMATION, now)
            record(job, decision, facts, now)
    except AttemptOpen as taken:
        return str(taken)
    return f"Restart {attempt.epoch} of {job.name} decided: {decision.reason}"


def _moved(outcome: Counter[str]) -> list[str]:
    done = ", ".join(f"{count} {what}" for what, count in outcome.items())
    return [f"Restarts: {done}."] if done else []
