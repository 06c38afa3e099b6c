"""Another cluster answers at a cluster's address."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Number, Source, Subject, Terms, Unit
from monitoring.alerts.kinds.outage_lengths import OutageLength, current
from monitoring.alerts.rule_facts import Facts
from monitoring.durations import in_words


class AnotherCluster(OutageLength):
    name = "another_cluster"
    title = _("Another cluster answers")
    source = Source.STRANGERS
    subject = Subject.CLUSTER
    threshold = Number(_("For"), Unit.SECONDS, 60, 1, 7 * 86_400, _("Such as 60 s."))

    def explain(self, terms: Terms) -> str:
        return (
            f"Opens when another cluster has answered at a cluster's address for {in_words(terms.threshold or 0)}. "
            "Nothing is concluded of its jobs until a person confirms that it was rebuilt, or mends the address."
        )

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        outage = current(facts, at)
        if outage is None:
            return Finding(f"Cluster {subject} is itself again.", {"threshold_s": terms.threshold})
        return Finding(
            f"Another cluster answers at the address of {subject} since {outage.began:%H:%M:%S} UTC: its jobs are "
            f"unknown until a person says which it is (limit {in_words(terms.threshold or 0)}).",
            {"since": outage.began.isoformat(), "threshold_s": terms.threshold},
        )


KIND = AnotherCluster()
