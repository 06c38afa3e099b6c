"""Kinds that measure how long a cluster has had a problem: it was silent, another one, not polled, or not deployed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Subject, Terms, Unit
from monitoring.alerts.rule_facts import Facts, Interval
from monitoring.reasons.reason import Reason, ReasonCode

_INSTANT = timedelta(microseconds=1)


class OutageLength(Kind):
    """A kind whose value is the number of seconds since the outage began, or 0 without an outage."""

    group = _("Watching")
    unit = Unit.SECONDS
    check_every_s = 30
    # The texts of the rule, of a subject without an outage, and of one with an outage.
    rule: ClassVar[ReasonCode]
    over: ClassVar[ReasonCode]
    found: ClassVar[ReasonCode]

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        for outage in facts.outages:
            yield outage.began
            yield outage.began + timedelta(seconds=terms.threshold or 0)
            if outage.ended is not None:
                yield outage.ended - _INSTANT  # the last moment of the outage, when the value is highest
                yield outage.ended

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        outage = current(facts, at)
        return (at - outage.began).total_seconds() if outage else 0

    def explain(self, terms: Terms) -> Reason:
        return self.rule(limit=terms.threshold or 0)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        outage = current(facts, at)
        said = {"subject": subject} if self.subject is Subject.CLUSTER else {}
        if outage is None:
            return Finding(self.over(**said), {"threshold_s": terms.threshold})
        return Finding(
            self.found(**said, since=outage.began, limit=terms.threshold or 0),
            {"since": outage.began.isoformat(), "threshold_s": terms.threshold},
        )


def current(facts: Facts, at: datetime) -> Interval | None:
    """Return the outage at this moment. If there are several, return the longest."""
    return min((outage for outage in facts.outages if outage.covers(at)), default=None, key=lambda each: each.began)


class ClusterUnreachableReason(ReasonCode):
    RULE = (
        "alerts.cluster-unreachable-rule",
        _(
            "Opens when a cluster has not answered for {limit:length}. Meanwhile the rules of its jobs are "
            "frozen, because the status of the jobs is unknown."
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
    rule, over, found = ClusterUnreachableReason.RULE, ClusterUnreachableReason.OVER, ClusterUnreachableReason.FOUND


class AnotherClusterReason(ReasonCode):
    RULE = (
        "alerts.another-cluster-rule",
        _(
            "Opens when another cluster has answered at a cluster's address for {limit:length}. Waymark draws no "
            "conclusions about its jobs until a person confirms that the cluster was rebuilt, or corrects the address."
        ),
    )
    OVER = "alerts.another-cluster-over", _("Cluster {subject} is the expected cluster again.")
    FOUND = (
        "alerts.another-cluster",
        _(
            "Another cluster has answered at the address of {subject} since {since:hh:mm:ss}. The status of "
            "its jobs is unknown until somebody confirms which cluster it is (limit {limit:length})."
        ),
    )


class AnotherCluster(OutageLength):
    name = "another_cluster"
    title = _("Another cluster answers")
    source = Source.OTHER_CLUSTERS
    subject = Subject.CLUSTER
    threshold = Number(_("For"), Unit.SECONDS, 60, 1, 7 * 86_400, _("Such as 60 s."))
    rule, over, found = AnotherClusterReason.RULE, AnotherClusterReason.OVER, AnotherClusterReason.FOUND


class WaymarkBlindReason(ReasonCode):
    RULE = (
        "alerts.waymark-blind-rule",
        _(
            "Opens when Waymark has not polled a cluster for {limit:length} although a poll was due. If "
            "Waymark itself was down, it reports this after its start."
        ),
    )
    OVER = "alerts.waymark-blind-over", _("Waymark polls every cluster on schedule.")
    FOUND = (
        "alerts.waymark-blind",
        _("Waymark was not polling: a cluster was last polled before {since:hh:mm:ss} (limit {limit:length})."),
    )


class WaymarkBlind(OutageLength):
    """Finds times when Waymark did not poll: it had no worker, no scheduler or no database."""

    name = "waymark_blind"
    title = _("Waymark not polling")
    source = Source.NOT_POLLED
    subject = Subject.WAYMARK
    threshold = Number(_("For"), Unit.SECONDS, 120, 30, 7 * 86_400, _("Such as 2 min."))
    rule, over, found = WaymarkBlindReason.RULE, WaymarkBlindReason.OVER, WaymarkBlindReason.FOUND


class DeploymentProblemReason(ReasonCode):
    RULE = (
        "alerts.deployment-problem-rule",
        _(
            "Opens when the platform has reported a problem of a cluster's deployment for {limit:length}: an error of "
            "its operator, or a pod that does not run."
        ),
    )
    OVER = "alerts.deployment-problem-over", _("The platform reports no problem of cluster {subject}.")
    FOUND = (
        "alerts.deployment-problem",
        _(
            "The platform has reported a problem of cluster {subject} since {since:hh:mm:ss} (limit {limit:length}). "
            "The page of the cluster shows it."
        ),
    )


class DeploymentProblem(OutageLength):
    name = "deployment_problem"
    title = _("Deployment problem")
    source = Source.PLATFORM_PROBLEMS
    subject = Subject.CLUSTER
    threshold = Number(_("For"), Unit.SECONDS, 300, 1, 7 * 86_400, _("Such as 5 min."))
    rule, over, found = DeploymentProblemReason.RULE, DeploymentProblemReason.OVER, DeploymentProblemReason.FOUND


KINDS = (ClusterUnreachable(), AnotherCluster(), WaymarkBlind(), DeploymentProblem())
