"""One flight per cluster: taken by a conditional UPDATE, given back by the flight's own writing.

A flight whose lease ran out writes nothing: the writer locks the cluster's row and checks that the lease is still its
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from monitoring.models import Cluster

LEASE = timedelta(seconds=60)


@dataclass(frozen=True)
class Claim:
    cluster_id: int
    until: datetime


class ClaimLost(Exception):
    """Another flight has the cluster by now."""


def claim_due(now: datetime, limit: int = 50) -> list[Claim]:
    """Take the clusters whose poll is due and that nobody polls, the longest due first."""
    due = Q(next_poll_at=None) | Q(next_poll_at__lte=now)
    free = Q(poll_claimed_until=None) | Q(poll_claimed_until__lte=now)
    candidates = Cluster.objects.filter(due, free, enabled=True).order_by("next_poll_at")
    until = now + LEASE
    return [
        Claim(cluster_id, until)
        for cluster_id in candidates.values_list("pk", flat=True)[:limit]
        if Cluster.objects.filter(due, free, enabled=True, pk=cluster_id).update(poll_claimed_until=until)
    ]


def locked(claim: Claim) -> Cluster:
    """The claimed cluster, its row locked until the transaction ends. Raises ClaimLost."""
    cluster = Cluster.objects.select_for_update().filter(pk=claim.cluster_id, poll_claimed_until=claim.until).first()
    if cluster is None:
        raise ClaimLost
    return cluster
