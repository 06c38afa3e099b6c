"""Another cluster answers at a cluster's address."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Number, Source, Subject, Terms, Unit
from monitoring.alerts.kinds.outage_lengths import OutageLength, current
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode


class AnotherClusterReason(ReasonCode):
    RULE = (
        "alerts.another-cluster-rule",
        _(
            "Opens when another cluster has answered at a cluster's address for {limit:length}. "
            "Nothing is concluded of its jobs until a person confirms that it was rebuilt, or mends the address."
        ),
    )
    OVER = "alerts.another-cluster-over", _("Cluster {subject} is itself again.")
    FOUND = (
        "alerts.another-cluster",
        _(
            "Another cluster answers at the address of {subject} since {since:hh:mm:ss}: its jobs are unknown until a "
            "person says which it is (limit {limit:length})."
        ),
    )


class AnotherCluster(OutageLength):
    name = "another_cluster"
    title = _("Another cluster answers")
    source = Source.STRANGERS
    subject = Subject.CLUSTER
    threshold = Number(_("For"), Unit.SECONDS, 60, 1, 7 * 86_400, _("Such as 60 s."))

    def explain(self, terms: Terms) -> Reason:
        return AnotherClusterReason.RULE(limit=terms.threshold or 0)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        outage = current(facts, at)
        if outage is None:
            return Finding(AnotherClusterReason.OVER(subject=subject), {"threshold_s": terms.threshold})
        return Finding(
            AnotherClusterReason.FOUND(subject=subject, since=outage.began, limit=terms.threshold or 0),
            {"since": outage.began.isoformat(), "threshold_s": terms.threshold},
        )


KIND = AnotherCluster()
