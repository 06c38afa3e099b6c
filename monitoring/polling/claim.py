"""Claims on clusters: a flight (one poll of one cluster) holds a lease, which is renewed during the flight.

The transaction that stores the flight's result gives the claim back. Each claim has its own token. The writer locks the
cluster's row and checks the token, so that a flight with an expired lease stores nothing after another has claimed the
cluster.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet

from monitoring import bulk
from monitoring.models import Cluster

# After a worker is killed, its clusters are not polled for this long. Leases are renewed three times as often.
LEASE = timedelta(seconds=20)
# Shorter than a lease, because a flight that waits for a lock may lose its lease.
LOCKS_WITHIN_S = 5
# A wrong clock has planned a poll that is further ahead than twice the interval and a minute, or has set a lease that
# ends after more than two terms. Such clusters count as due.
_CLAIM = """
WITH due AS MATERIALIZED (
    SELECT id FROM monitoring_cluster
    WHERE enabled
      AND (next_poll_at IS NULL OR next_poll_at <= %(now)s
           OR next_poll_at > %(now)s + (poll_interval_s * 2 + 60) * interval '1 second')
      AND (poll_claimed_until IS NULL OR poll_claimed_until <= %(now)s OR poll_claimed_until > %(wrong)s)
    ORDER BY next_poll_at NULLS FIRST LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE monitoring_cluster cluster SET poll_claimed_by = %(token)s, poll_claimed_until = %(until)s
FROM due WHERE cluster.id = due.id RETURNING {columns}
"""
_LOCKED = "SELECT {columns} FROM monitoring_cluster cluster WHERE id = %s AND poll_claimed_by = %s FOR UPDATE"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Claim:
    """A claim on a cluster. `cluster` is its row at the time of the claim."""

    cluster: Cluster
    token: str


class ClaimLost(Exception):
    """Raised if another flight has claimed the cluster meanwhile."""


def claim_due(now: datetime, limit: int = 50) -> list[Claim]:
    """Claim clusters that are due and not being polled, starting with the one that is due longest."""
    token = uuid.uuid4().hex
    given = {"now": now, "limit": limit, "token": token, "until": now + LEASE, "wrong": now + 2 * LEASE}
    taken = sorted(_clusters(_CLAIM, given), key=lambda cluster: cluster.next_poll_at or _LONG_AGO)
    return [Claim(cluster, token) for cluster in taken]


def renew(claims: Collection[Claim], now: datetime) -> None:
    """Renew the leases of these claims, except those that are lost."""
    if claims:
        held = Q(poll_claimed_by__in={claim.token for claim in claims})
        _mine(claim.cluster for claim in claims).filter(held).update(poll_claimed_until=now + LEASE)


def release(claims: Collection[Claim]) -> None:
    """Give the claims back without a result, so that the next worker can poll the clusters at once."""
    if claims:
        held = Q(poll_claimed_by__in={claim.token for claim in claims})
        _mine(claim.cluster for claim in claims).filter(held).update(poll_claimed_by="", poll_claimed_until=None)


def locked(claim: Claim) -> Cluster:
    """Return the claimed cluster with its row locked until the transaction ends. Raises ClaimLost.

    Also limit the transaction's waits for locks, so that a locked table does not delay the results of other clusters.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{LOCKS_WITHIN_S}s'")
    for held in _clusters(_LOCKED, [claim.cluster.pk, claim.token]):
        return held
    raise ClaimLost


def _clusters(statement: str, given: Mapping[str, Any] | Sequence[Any]) -> list[Cluster]:
    columns = bulk.columns_of(Cluster)
    with connection.cursor() as cursor:
        cursor.execute(statement.format(columns=", ".join(f"cluster.{column}" for column in columns)), given)
        return [bulk.loaded(Cluster, columns, row) for row in cursor.fetchall()]


def _mine(clusters: Iterable[Cluster]) -> QuerySet[Cluster]:
    return Cluster.objects.filter(pk__in=[cluster.pk for cluster in clusters])
