"""One cycle of recovery: examine dead jobs, decide, and move the restart attempts."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import assert_never

from django.db import transaction

from monitoring import audit
from monitoring.kubernetes.job_resources import JobResource, resource_of
from monitoring.models import Job, RestartTrigger
from monitoring.pauses import active as pauses_now
from monitoring.pauses import end_of_jobs
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.reasons.report import CycleReport
from monitoring.recovery.attempt import AttemptOpen, open_attempt
from monitoring.recovery.breaker import open_breaker
from monitoring.recovery.decisions import record
from monitoring.recovery.detection import JobFacts, Leave, NeedsPerson, OpenBreaker, Restart, decide
from monitoring.recovery.evidence import dead_jobs, facts_of
from monitoring.recovery.moving import move_attempts
from monitoring.recovery.not_restarted import report_not_restarted, resolve_recovered
from monitoring.recovery.run_schedule import start_due_runs
from monitoring.recovery.traces import remove_traces


def advance(now: datetime) -> CycleReport:
    """Decide restarts of dead jobs and move every open attempt."""
    resumed = [Why.PAUSE_OVER(job=name) for name in end_of_jobs(now)]
    decided = _decide_all(now)
    moved = [*start_due_runs(now), *_moved(move_attempts(now))]
    remove_traces()
    if back := resolve_recovered(now):
        moved.append(Why.BACK_AGAIN(jobs=back))
    return CycleReport(tuple(resumed)) + decided + CycleReport(tuple(moved))


def _decide_all(now: datetime) -> CycleReport:
    done: list[Reason] = []
    left: list[Reason] = []
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
                _report_not_restarted(job, Why.BREAKER_OPEN(since=now, reason=reason), facts, now)
                done.append(Why.BREAKER_OPENED(job=job.name, reason=reason))
            case NeedsPerson(reason) | OpenBreaker(reason):
                is_news = _report_not_restarted(job, reason, facts, now)
                (done if is_news else left).append(Why.NEEDS_PERSON(job=job.name, reason=reason))
            case Leave(reason):
                left.append(Why.LEFT(job=job.name, reason=reason))
            case _:
                assert_never(decision)
    return CycleReport(tuple(done), tuple(left))


def _report_not_restarted(job: Job, why: Reason, facts: JobFacts, now: datetime) -> bool:
    """Notify people that the job is not restarted; return False if the incident already says this."""
    cause = facts.cause.rstrip(".")
    if cause:
        sentence = Why.NOT_RESTARTED_AFTER(job=job.name, why=why, cause=cause)
    else:
        sentence = Why.NOT_RESTARTED(job=job.name, why=why)
    return report_not_restarted(job, sentence, {"why": why.as_json(), "cause": facts.cause}, now)


def _open(job: Job, decision: Restart, facts: JobFacts, now: datetime) -> Reason:
    """Store the decision and its attempt in one transaction, so that neither exists without the other."""
    try:
        with transaction.atomic():
            row = resource_of(job)
            attempt = open_attempt(
                job,
                RestartTrigger.AUTOMATIC,
                decision.reason,
                audit.AUTOMATION,
                now,
                resource=JobResource.of(row) if row else None,
            )
            record(job, decision, facts, now)
    except AttemptOpen as taken:
        return taken.reason
    return Why.RESTART_DECIDED(epoch=attempt.epoch, job=job.name, reason=decision.reason)


def _moved(outcomes: Counter[Why]) -> list[Reason]:
    counted = [outcome(count=count) for outcome, count in outcomes.items()]
    return [Why.RESTARTS_MOVED(outcomes=counted)] if counted else []
