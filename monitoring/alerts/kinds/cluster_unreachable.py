"""A cluster does not answer."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Number, Source, Subject, Terms, Unit
from monitoring.alerts.kinds.outage_lengths import OutageLength, current
from monitoring.alerts.rule_facts import Facts
from monitoring.durations import in_words


class ClusterUnreachable(OutageLength):
    name = "cluster_unreachable"
    title = _("Cluster unreachable")
    source = Source.OUTAGES
    subject = Subject.CLUSTER
    threshold = Number(_("For"), Unit.SECONDS, 60, 1, 7 * 86_400, _("Such as 60 s."))

    def explain(self, terms: Terms) -> str:
        return (
            f"Opens when a cluster has not answered for {in_words(terms.threshold or 0)}. "
            "The rules of its jobs freeze meanwhile: silence proves nothing of them."
        )

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        outage = current(facts, at)
        if outage is None:
            return Finding(f"Cluster {subject} answers.", {"threshold_s": terms.threshold})
        limit = in_words(terms.threshold or 0)
        return Finding(
            f"Cluster {subject} has not answered since {outage.began:%H:%M:%S} UTC (limit {limit}).",
            {"since": outage.began.isoformat(), "threshold_s": terms.threshold},
        )


KIND = ClusterUnreachable()
