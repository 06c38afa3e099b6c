"""A rule kind that finds jobs with a schedule of runs that did not run, or did not finish, in time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.ages import Age
from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Event, Facts, RunFact
from monitoring.reasons.reason import Reason, ReasonCode

# The start of a run comes from the engine's clock, its due time from Waymark's clock.
CLOCK_SKEW = timedelta(minutes=1)


class RunMissedReason(ReasonCode):
    RULE = (
        "alerts.run-missed-rule",
        _(
            "Opens when a job that is run on a schedule has not finished {limit:length} after the time when a run was "
            "due: it was not started, failed, or takes longer. Closes when a later run finishes."
        ),
    )
    AS_SCHEDULED = "alerts.run-as-scheduled", _("{subject} has run as scheduled.")
    NOT_RUN = "alerts.run-missed", _("{subject} was due at {due:minute} and has not run (limit {limit:length}).")
    NOT_RUN_PROBLEM = (
        "alerts.run-missed-problem",
        _("{subject} was due at {due:minute} and has not run (limit {limit:length}). {problem}"),
    )
    UNFINISHED = (
        "alerts.run-unfinished",
        _("{subject} was due at {due:minute} and has not finished: run {run} is in progress (limit {limit:length})."),
    )
    FAILED = (
        "alerts.scheduled-run-failed",
        _("{subject} was due at {due:minute}, and run {run} failed (limit {limit:length})."),
    )


class RunMissed(Age):
    """The age counts from the first due time that no run has covered.

    A run that started then or later, and has ended without failing, covers it. Events are due times. Of several due
    times without a run between them, only the first is an event.
    """

    name = "run_missed"
    title = _("Scheduled run missing or late")
    group = _("Job")
    source = Source.SCHEDULED_RUNS
    threshold = Number(
        _("Finished within"),
        Unit.SECONDS,
        3600,
        60,
        30 * 86_400,
        _("Counted from the time when the run was due, such as 1 h."),
    )

    def explain(self, terms: Terms) -> Reason:
        return RunMissedReason.RULE(limit=terms.threshold or 0)

    def begin(self, facts: Facts, terms: Terms, at: datetime) -> datetime | None:
        due = _missed(facts, at)
        return due.at if due else None

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        due = _missed(facts, at)
        if due is None:
            return Finding(
                RunMissedReason.AS_SCHEDULED(subject=subject), {"threshold_s": terms.threshold, "due_at": None}
            )
        run = _run_for(facts, due, at)
        evidence = {
            "threshold_s": terms.threshold,
            "due_at": due.at.isoformat(),
            "run": run.number if run else None,
            "failed": bool(run and not run.is_live_at(at)),
            "cause": run.cause[:1000] if run and run.failed else "",
            "problem": due.text,
        }
        said = {"subject": subject, "due": due.at, "limit": terms.threshold or 0}
        if run is None and due.text:
            return Finding(RunMissedReason.NOT_RUN_PROBLEM(**said, problem=due.text), evidence)
        if run is None:
            return Finding(RunMissedReason.NOT_RUN(**said), evidence)
        code = RunMissedReason.UNFINISHED if run.is_live_at(at) else RunMissedReason.FAILED
        return Finding(code(**said, run=run.number), evidence)


def _missed(facts: Facts, at: datetime) -> Event | None:
    """Return the first due time up to `at` that no run has covered by then."""
    covered = [run.started_at for run in facts.runs if _has_finished(run, at)]
    after = max(covered) + CLOCK_SKEW if covered else None
    due = facts.events[: facts.index(at)]
    return next((event for event in due if after is None or event.at > after), None)


def _has_finished(run: RunFact, at: datetime) -> bool:
    return run.ended_at is not None and run.ended_at <= at and not run.failed


def _run_for(facts: Facts, due: Event, at: datetime) -> RunFact | None:
    run = facts.run(at)
    return run if run and run.started_at >= due.at - CLOCK_SKEW else None


KINDS = (RunMissed(),)
