"""One flight per cluster: taken under a lease, prolonged while it is under way, given back by the flight's own writing.

Each claim has a token of its own. A flight whose lease ran out writes nothing once another has the cluster: the writer
locks the cluster's row and checks that the token there is still its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, Q, QuerySet, Value

from monitoring.models import Cluster

# A worker that was killed leaves its clusters unasked for so long. Prolonged three times as often.
LEASE = timedelta(seconds=20)
# No poll is planned later than this: one that is was planned by a clock that was wrong, like a lease of two terms.
_FARTHEST_POLL = ExpressionWrapper(
    (F("poll_interval_s") * 2 + 60) * Value(timedelta(seconds=1)), output_field=DurationField()
)


@dataclass(frozen=True)
class Claim:
    """`cluster` is the row as it was when it was claimed."""

    cluster: Cluster
    token: str


class ClaimLost(Exception):
    """Another flight has the cluster by now."""


def claim_due(now: datetime, limit: int = 50) -> list[Claim]:
    """Take the clusters whose poll is due and that nobody polls, the longest due first."""
    due = Q(next_poll_at=None) | Q(next_poll_at__lte=now) | Q(next_poll_at__gt=_FARTHEST_POLL + Value(now))
    free = Q(poll_claimed_until=None) | Q(poll_claimed_until__lte=now) | Q(poll_claimed_until__gt=now + 2 * LEASE)
    candidates = Cluster.objects.filter(due, free, enabled=True).order_by(F("next_poll_at").asc(nulls_first=True))
    if not candidates.exists():
        return []
    token = uuid.uuid4().hex
    with transaction.atomic():
        taken = list(candidates.select_for_update(skip_locked=True)[:limit])
        if taken:
            _mine(taken).update(poll_claimed_by=token, poll_claimed_until=now + LEASE)
    return [Claim(cluster, token) for cluster in taken]


def prolong(claims: Collection[Claim], now: datetime) -> None:
    """Those that are lost stay lost."""
    if claims:
        held = Q(poll_claimed_by__in={claim.token for claim in claims})
        _mine(claim.cluster for claim in claims).filter(held).update(poll_claimed_until=now + LEASE)


def give_back(claims: Collection[Claim]) -> None:
    """Without an answer: the next worker may ask at once."""
    if claims:
        held = Q(poll_claimed_by__in={claim.token for claim in claims})
        _mine(claim.cluster for claim in claims).filter(held).update(poll_claimed_by="", poll_claimed_until=None)


def locked(claim: Claim) -> Cluster:
    """The claimed cluster, its row locked until the transaction ends. Raises ClaimLost."""
    held = Cluster.objects.select_for_update().filter(pk=claim.cluster.pk, poll_claimed_by=claim.token).first()
    if held is None:
        raise ClaimLost
    return held


def _mine(clusters: Iterable[Cluster]) -> QuerySet[Cluster]:
    return Cluster.objects.filter(pk__in=[cluster.pk for cluster in clusters])
