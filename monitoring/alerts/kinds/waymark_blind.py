"""Waymark itself did not look: no worker, no scheduler, or no database."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Number, Source, Subject, Terms, Unit
from monitoring.alerts.kinds.outage_lengths import OutageLength, current
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode


class WaymarkBlindReason(ReasonCode):
    RULE = (
        "alerts.waymark-blind-rule",
        _(
            "Opens when Waymark has not asked a cluster for {limit:length} although it was due. "
            "An outage of Waymark as a whole is told of when it is back."
        ),
    )
    OVER = "alerts.waymark-blind-over", _("Waymark asks every cluster in time.")
    FOUND = (
        "alerts.waymark-blind",
        _("Waymark was blind: it asked a cluster last before {since:hh:mm:ss} (limit {limit:length})."),
    )


class WaymarkBlind(OutageLength):
    name = "waymark_blind"
    title = _("Waymark itself blind")
    source = Source.NOT_ASKED
    subject = Subject.WAYMARK
    threshold = Number(_("For"), Unit.SECONDS, 120, 30, 7 * 86_400, _("Such as 2 min."))

    def explain(self, terms: Terms) -> Reason:
        return WaymarkBlindReason.RULE(limit=terms.threshold or 0)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        outage = current(facts, at)
        if outage is None:
            return Finding(WaymarkBlindReason.OVER(), {"threshold_s": terms.threshold})
        return Finding(
            WaymarkBlindReason.FOUND(since=outage.began, limit=terms.threshold or 0),
            {"since": outage.began.isoformat(), "threshold_s": terms.threshold},
        )


KIND = WaymarkBlind()
