"""No checkpoint completed for too long, "never one yet" included."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.ages import Age, live_run
from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts, RunFact
from monitoring.durations import in_words


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
        _("Empty: derived for each job, max(interval, timeout) × (tolerable failures + 2)."),
    )

    def explain(self, terms: Terms) -> str:
        if terms.threshold is not None:
            told = f"Opens when no checkpoint of a running job completed for {in_words(terms.threshold)}"
        else:
            told = (
                "Opens when no checkpoint of a running job completed for longer than it may take: the longer of its "
                "interval and its timeout, times its tolerable failures and two more"
            )
        return f"{told}; counts from the start of the run when it had none yet."

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
            return Finding(f"{subject} does not run, so that it owes no checkpoint.", evidence)
        if last is None or last.at < run.started_at:
            return Finding(
                f"No checkpoint of {subject} completed since run {run.number} began at {run.started_at:%H:%M:%S} UTC "
                f"(limit {in_words(limit or 0)}).",
                evidence,
            )
        return Finding(
            f"No checkpoint of {subject} completed since {last.number} at {last.at:%H:%M:%S} UTC "
            f"(limit {in_words(limit or 0)}).",
            evidence,
        )


def derived_limit_s(run: RunFact) -> float | None:
    """None: the run takes no periodic checkpoints, or its configuration is not known yet.

    The same in SQL: gathering/ages.py.
    """
    if run.interval_ms is None:
        return None
    return max(run.interval_ms, run.timeout_ms or 0) / 1000 * (run.tolerable + 2)


KIND = NoCompletedCheckpoint()
