"""A rule kind that finds running jobs without a completed checkpoint for too long, or since their start."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.ages import Age, live_run
from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts, RunFact
from monitoring.reasons.reason import Reason, ReasonCode

# The derived limit is at most this many times the longer of interval and timeout, or this time if it is longer: with a
# huge number of tolerable failures, the rule would never open.
CAP_PERIODS = 10
LEAST_CAP_S = 1800


class NoCompletedCheckpointReason(ReasonCode):
    RULE = (
        "alerts.no-completed-checkpoint-rule",
        _(
            "Opens when no checkpoint of a running job completed for {limit:length}; counts from the start "
            "of the run if the run has no checkpoint yet."
        ),
    )
    RULE_DERIVED = (
        "alerts.no-completed-checkpoint-rule-derived",
        _(
            "Opens when no checkpoint of a running job completed for longer than expected: the longer of its "
            "interval and its timeout, multiplied by its tolerable failures plus two, but at most 10 times the longer "
            "one or 30 min, whichever is longer; counts from the start of the run if the run has no checkpoint yet."
        ),
    )
    NOT_RUNNING = "alerts.no-checkpoint-owed", _("{subject} is not running, so no checkpoint is expected.")
    NONE_OF_RUN = (
        "alerts.no-completed-checkpoint-of-run",
        _("No checkpoint of {subject} completed since run {run} began at {at:hh:mm:ss} (limit {limit:length})."),
    )
    NONE_SINCE = (
        "alerts.no-completed-checkpoint",
        _("No checkpoint of {subject} completed since {checkpoint} at {at:hh:mm:ss} (limit {limit:length})."),
    )


class NoCompletedCheckpoint(Age):
    name = "no_completed_checkpoint"
    title = _("No completed checkpoint")
    group = _("Checkpoints")
    source = Source.COMPLETIONS
    threshold = Number(
        _("For"),
        Unit.SECONDS,
        None,
        10,
        90 * 86_400,
        _("Such as 30 min."),
        _(
            "Empty: derived for each job, max(interval, timeout) × (tolerable failures + 2), but at most "
            "10 × max(interval, timeout) or 30 min, whichever is longer."
        ),
    )

    def explain(self, terms: Terms) -> Reason:
        if terms.threshold is None:
            return NoCompletedCheckpointReason.RULE_DERIVED()
        return NoCompletedCheckpointReason.RULE(limit=terms.threshold)

    def limit(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        if terms.threshold is not None:
            return terms.threshold
        run = live_run(facts, at)
        return derived_limit_s(run) if run else None

    def begin(self, facts: Facts, terms: Terms, at: datetime) -> datetime | None:
        run, last = live_run(facts, at), facts.last(at)
        if run is None:
            return None
        return max(run.started_at, last.at) if last else run.started_at

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        run, last, limit = live_run(facts, at), facts.last(at), self.limit(facts, terms, at)
        evidence = {
            "limit_s": limit,
            "derived": terms.threshold is None,
            "last_checkpoint_id": last.number if last else None,
            "last_row": last.row if last else None,
            "last_completed_at": last.at.isoformat() if last else None,
            "run_started_at": run.started_at.isoformat() if run else None,
        }
        if run is None:
            return Finding(NoCompletedCheckpointReason.NOT_RUNNING(subject=subject), evidence)
        said = {"subject": subject, "limit": limit or 0}
        if last is None or last.at < run.started_at:
            none = NoCompletedCheckpointReason.NONE_OF_RUN(**said, run=run.number, at=run.started_at)
        else:
            none = NoCompletedCheckpointReason.NONE_SINCE(**said, checkpoint=last.number, at=last.at)
        return Finding(none, evidence)


def derived_limit_s(run: RunFact) -> float | None:
    """Return None if the run takes no periodic checkpoints, or if its configuration is not known yet.

    gathering/ages.py has the same formula in SQL.
    """
    if run.interval_ms is None:
        return None
    period_s = max(run.interval_ms, run.timeout_ms or 0) / 1000
    return min(period_s * (run.tolerable + 2), max(period_s * CAP_PERIODS, LEAST_CAP_S))


KINDS = (NoCompletedCheckpoint(),)
