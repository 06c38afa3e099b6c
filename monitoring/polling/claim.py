"""One flight per cluster: taken under a lease, prolonged while it is under way, given back by the flight's own writing.

Each claim has a token of its own. A flight whose lease ran out writes nothing once another has the cluster: the writer
locks the cluster's row and checks that the token there is still its own.
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

# A worker that was killed leaves its clusters unasked for so long. Prolonged three times as often.
LEASE = timedelta(seconds=20)
# Shorter than a lease, which a flight that waits for a lock may outlive.
LOCKS_WITHIN_S = 5
# No poll is planned later than this after now: one that is was planned by a clock that was wrong, like a lease of two
# terms.
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
    """`cluster` is the row as it was when it was claimed."""

    cluster: Cluster
    token: str


class ClaimLost(Exception):
    """Another flight has the cluster by now."""


def claim_due(now: datetime, limit: int = 50) -> list[Claim]:
    """Take the clusters whose poll is due and that nobody polls, the longest due first."""
    token = uuid.uuid4().hex
    given = {"now": now, "limit": limit, "token": token, "until": now + LEASE, "wrong": now + 2 * LEASE}
    taken = sorted(_clusters(_CLAIM, given), key=lambda cluster: cluster.next_poll_at or _LONG_AGO)
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
    """The claimed cluster, its row locked until the transaction ends. Raises ClaimLost.

    Whatever else the transaction has to wait for, it does not wait long: a table that somebody locks must not hold up
    what other clusters answer.
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
