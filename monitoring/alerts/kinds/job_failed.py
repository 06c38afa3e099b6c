"""A rule kind that finds dead jobs: the job failed, or its engine no longer knows it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Source, Terms
from monitoring.alerts.rule_facts import Facts, RunFact
from monitoring.reasons.reason import Reason, ReasonCode


class JobFailedReason(ReasonCode):
    RULE = (
        "alerts.job-failed-rule",
        _("Opens when a job failed or its engine lost it; closes when the job runs again or was ended on purpose."),
    )
    RUNNING = "alerts.job-running-again", _("{subject} is running again.")
    STOPPED = "alerts.job-stopped", _("{subject} was stopped or has finished.")
    # Only rows of earlier versions have this reason.
    NOT_DEAD = "alerts.job-not-dead", _("{subject} is not in a failed state.")
    FAILED = "alerts.job-failed", _("{subject} failed: run {run} ended at {at:hh:mm:ss}.")
    FAILED_CAUSE = "alerts.job-failed-cause", _("{subject} failed: run {run} ended at {at:hh:mm:ss}: {cause}.")
    LOST = "alerts.job-lost", _("{subject} was lost: the engine has not known run {run} since {at:hh:mm:ss}.")


class JobFailed(Kind):
    name = "job_failed"
    title = _("Job failed")
    group = _("Job")
    source = Source.RUNS
    check_every_s = 30

    def explain(self, terms: Terms) -> Reason:
        return JobFailedReason.RULE()

    def limit(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return 1

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        for run in facts.runs:
            yield from (at for at in (run.started_at, run.ended_at) if at and since < at <= until)

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return 1 if _dead(facts, at) else 0

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        dead = _dead(facts, at)
        if dead is None or dead.ended_at is None:
            run = facts.run(at)
            code = JobFailedReason.RUNNING if run and run.is_live_at(at) else JobFailedReason.STOPPED
            return Finding(code(subject=subject), {"run": run.number if run else None})
        evidence = {"run": dead.number, "ended_at": dead.ended_at.isoformat(), "cause": dead.cause[:1000]}
        evidence |= {"lost": True} if dead.lost else {}
        said = {"subject": subject, "run": dead.number, "at": dead.ended_at}
        if dead.lost:  # an earlier exception is not the reason why the engine no longer knows the job
            return Finding(JobFailedReason.LOST(**said), evidence)
        cause = dead.cause.strip().partition("\n")[0][:300].rstrip(".")
        reason = JobFailedReason.FAILED_CAUSE(**said, cause=cause) if cause else JobFailedReason.FAILED(**said)
        return Finding(reason, evidence)


def _dead(facts: Facts, at: datetime) -> RunFact | None:
    run = facts.run(at)
    return run if run and run.failed and run.ended_at and run.ended_at <= at else None


KINDS = (JobFailed(),)
