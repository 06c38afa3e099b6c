"""Claims on sources: the worker that reads a source holds a lease, which it renews, and a token.

Each change locks the source's row and checks the token. So a worker whose lease has expired changes nothing after
another worker has claimed the source: an old change never follows a newer one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet

from monitoring.models import DiscoverySource

# After a worker is killed, nobody reads its sources for this long. The lease is renewed three times as often.
LEASE = timedelta(seconds=30)


@dataclass(frozen=True)
class Claim:
    """A claim on a source. `source` is its row at the time of the claim."""

    source: DiscoverySource
    token: str


class ClaimLost(Exception):
    """Another worker has claimed the source, or a person has changed, disabled or deleted it."""


def claim_due(now: datetime) -> list[Claim]:
    """Claim all sources that are due. A lease or a time that is too far ahead comes from a wrong clock."""
    due = Q(next_look_at=None) | Q(next_look_at__lte=now) | Q(next_look_at__gt=now + timedelta(minutes=5))
    free = Q(claimed_until=None) | Q(claimed_until__lte=now) | Q(claimed_until__gt=now + 2 * LEASE)
    token = uuid.uuid4().hex
    with transaction.atomic():
        rows = DiscoverySource.objects.select_for_update(skip_locked=True).filter(due, free, enabled=True)
        found = list(rows.order_by("pk"))
        mine = DiscoverySource.objects.filter(pk__in=[source.pk for source in found])
        mine.update(claimed_by=token, claimed_until=now + LEASE)
    return [Claim(source, token) for source in found]


def renew(claim: Claim, now: datetime) -> None:
    """Prolong the lease. Raise ClaimLost."""
    if not _row_of(claim).update(claimed_until=now + LEASE):
        raise ClaimLost


def release(claim: Claim, next_look_at: datetime) -> None:
    _row_of(claim).update(claimed_by="", claimed_until=None, next_look_at=next_look_at)


def require(claim: Claim) -> None:
    """Lock the row of the source until the transaction ends. Raise ClaimLost."""
    if not _row_of(claim).select_for_update(no_key=True).exists():
        raise ClaimLost


def _row_of(claim: Claim) -> QuerySet[DiscoverySource]:
    return DiscoverySource.objects.filter(pk=claim.source.pk, claimed_by=claim.token, enabled=True)
