"""A cluster does not answer."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Number, Source, Subject, Terms, Unit
from monitoring.alerts.kinds.outage_lengths import OutageLength, current
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode


class ClusterUnreachableReason(ReasonCode):
    RULE = (
        "alerts.cluster-unreachable-rule",
        _(
            "Opens when a cluster has not answered for {limit:length}. "
            "The rules of its jobs freeze meanwhile: silence proves nothing of them."
        ),
    )
    OVER = "alerts.cluster-unreachable-over", _("Cluster {subject} answers.")
    FOUND = (
        "alerts.cluster-unreachable",
        _("Cluster {subject} has not answered since {since:hh:mm:ss} (limit {limit:length})."),
    )


class ClusterUnreachable(OutageLength):
    name = "cluster_unreachable"
    title = _("Cluster unreachable")
    source = Source.OUTAGES
    subject = Subject.CLUSTER
    threshold = Number(_("For"), Unit.SECONDS, 60, 1, 7 * 86_400, _("Such as 60 s."))

    def explain(self, terms: Terms) -> Reason:
        return ClusterUnreachableReason.RULE(limit=terms.threshold or 0)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        outage = current(facts, at)
        if outage is None:
            return Finding(ClusterUnreachableReason.OVER(subject=subject), {"threshold_s": terms.threshold})
        return Finding(
            ClusterUnreachableReason.FOUND(subject=subject, since=outage.began, limit=terms.threshold or 0),
            {"since": outage.began.isoformat(), "threshold_s": terms.threshold},
        )


KIND = ClusterUnreachable()
