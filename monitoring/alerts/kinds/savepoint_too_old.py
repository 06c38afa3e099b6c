"""A rule kind that finds running jobs whose newest savepoint is missing or too old."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.ages import Age, live_run
from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode

_DAY = 86_400


class SavepointTooOldReason(ReasonCode):
    RULE = (
        "alerts.savepoint-too-old-rule",
        _(
            "Opens when the newest savepoint of a running job is {limit:length} old; for a job without a "
            "savepoint, that long after the job was first seen."
        ),
    )
    NONE = "alerts.no-savepoint", _("{subject} has no savepoint (limit {limit:length}).")
    FOUND = (
        "alerts.savepoint-too-old",
        _("The newest savepoint of {subject} is from {at:minute} (limit {limit:length})."),
    )


class SavepointTooOld(Age):
    name = "savepoint_too_old"
    title = _("Savepoint missing or too old")
    group = _("Savepoints")
    source = Source.SAVEPOINTS
    threshold = Number(
        _("Oldest"), Unit.SECONDS, 2 * _DAY, 60, 3650 * _DAY, _("The age of the newest savepoint, such as 2 d.")
    )
    check_every_s = 300

    def explain(self, terms: Terms) -> Reason:
        return SavepointTooOldReason.RULE(limit=terms.threshold or 0)

    def begin(self, facts: Facts, terms: Terms, at: datetime) -> datetime | None:
        if live_run(facts, at) is None:
            return None
        last = facts.last(at)
        return last.at if last else facts.first_seen_at

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last, limit = facts.last(at), terms.threshold or 0
        evidence = {
            "threshold_s": terms.threshold,
            "savepoint": last.row if last else None,
            "completed_at": last.at.isoformat() if last else None,
            "first_seen_at": facts.first_seen_at.isoformat() if facts.first_seen_at else None,
        }
        if last is None:
            return Finding(SavepointTooOldReason.NONE(subject=subject, limit=limit), evidence)
        return Finding(SavepointTooOldReason.FOUND(subject=subject, at=last.at, limit=limit), evidence)


KINDS = (SavepointTooOld(),)
