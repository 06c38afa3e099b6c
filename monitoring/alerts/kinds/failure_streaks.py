"""Kinds that count failures in a row, with no success in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import checkpoint_failure
from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit, checkpoints, savepoints
from monitoring.alerts.rule_facts import Event, Facts
from monitoring.reasons.reason import Reason, ReasonCode

FAILED = 1.0  # the value of a failure's event; a success has 0


class FailureStreak(Kind):
    counts = True

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (event.at for event in facts.within(since, until))

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return len(self.streak(facts, at))

    def streak(self, facts: Facts, at: datetime) -> Sequence[Event]:
        """Return the failures since the last success, the newest first."""
        return list(takewhile(lambda event: event.value == FAILED, reversed(facts.events[: facts.index(at)])))


class ConsecutiveFailuresReason(ReasonCode):
    RULE = (
        "alerts.consecutive-failures-rule",
        _(
            "Opens when {checkpoints} failed in a row and none completed in between; closes when the next "
            "checkpoint completes."
        ),
    )
    NONE = (
        "alerts.no-consecutive-failures",
        _("{checkpoints} of {subject} failed in a row (threshold {threshold})."),
    )
    FOUND = (
        "alerts.consecutive-failures",
        _("{checkpoints} of {subject} failed in a row (threshold {threshold}): the last, {checkpoint}, {failure}."),
    )


class ConsecutiveFailures(FailureStreak):
    name = "consecutive_failures"
    title = _("Checkpoints failing in a row")
    group = _("Checkpoints")
    source = Source.SETTLED
    threshold = Number(
        _("Threshold"),
        Unit.COUNT,
        3,
        1,
        10_000,
        _(
            "Failures in a row that open an incident. "
            "Checkpoints that a requested stop or restart aborted do not count."
        ),
    )
    reach = timedelta(days=1)

    def explain(self, terms: Terms) -> Reason:
        return ConsecutiveFailuresReason.RULE(checkpoints=checkpoints(terms.threshold or 0))

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        streak = self.streak(facts, at)
        said = {"checkpoints": checkpoints(len(streak)), "subject": subject, "threshold": terms.threshold}
        if streak:
            said |= {"checkpoint": streak[0].number, "failure": checkpoint_failure(streak[0].text)}
        return Finding(
            ConsecutiveFailuresReason.FOUND(**said) if streak else ConsecutiveFailuresReason.NONE(**said),
            {
                "count": len(streak),
                "threshold": terms.threshold,
                "checkpoint_ids": [event.number for event in streak[:20]],
                "last_row": streak[0].row if streak else None,
            },
        )


class SavepointFailedReason(ReasonCode):
    RULE = (
        "alerts.savepoint-failed-rule",
        _("Opens when {savepoints} failed in a row, scheduled or manual; closes when the next savepoint completes."),
    )
    FOUND = "alerts.savepoint-failed", _("{savepoints} of {subject} failed (threshold {threshold}).")
    FOUND_CAUSE = (
        "alerts.savepoint-failed-cause",
        _("{savepoints} of {subject} failed (threshold {threshold}): {cause}."),
    )


class SavepointFailed(FailureStreak):
    name = "savepoint_failed"
    title = _("Savepoint failed")
    group = _("Savepoints")
    source = Source.FAILED_SAVEPOINTS
    threshold = Number(_("Threshold"), Unit.COUNT, 1, 1, 1000, _("Failed savepoints in a row that open an incident."))

    def explain(self, terms: Terms) -> Reason:
        return SavepointFailedReason.RULE(savepoints=savepoints(terms.threshold or 0))

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        streak = self.streak(facts, at)
        cause = streak[0].text.strip().partition("\n")[0][:200].rstrip(".") if streak else ""
        said = {"savepoints": savepoints(len(streak)), "subject": subject, "threshold": terms.threshold}
        return Finding(
            SavepointFailedReason.FOUND_CAUSE(**said, cause=cause) if cause else SavepointFailedReason.FOUND(**said),
            {"count": len(streak), "threshold": terms.threshold, "savepoints": [event.row for event in streak[:20]]},
        )


KINDS = (ConsecutiveFailures(), SavepointFailed())
