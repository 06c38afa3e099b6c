"""One tick: claim what is due, read all of it at once, write each cluster the moment it has answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.engine.errors import NotAsked
from monitoring.engine.evidence import NoAnswer
from monitoring.polling.claim import Claim, ClaimLost, claim_due
from monitoring.polling.known import KnownCluster, known_cluster
from monitoring.polling.observation import ClusterObservation
from monitoring.polling.observe import observe
from monitoring.polling.store import postpone, store

log = logging.getLogger(__name__)

Now = Callable[[], datetime]
MakeClient = Callable[[Connection], FlinkClient]


def poll_due(now: Now, make_client: MakeClient = FlinkClient) -> str:
    """Poll every due cluster; the sentence says what changed, "" when nothing worth a line did.

    1. Claims and snapshots are taken before any request leaves.
    2. The flights share one event loop. It stands still while an answer is written, so the database is used from plain
       synchronous code; a cluster that is slow or hangs holds up no other's writing.
    """
    claims = {claim: known_cluster(claim) for claim in claim_due(now())}
    if not claims:
        return ""
    sentences = []
    with asyncio.Runner() as runner:
        flights = {
            runner.get_loop().create_task(_fly(known, now(), make_client)): claim for claim, known in claims.items()
        }
        pending = set(flights)
        while pending:
            done, pending = runner.run(asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED))
            sentences += [_land(flights[flight], flight, now) for flight in done]
    return " ".join(sentence for sentence in sentences if sentence)


async def _fly(known: KnownCluster, now: datetime, make_client: MakeClient) -> ClusterObservation:
    if isinstance(known.connection, NotAsked):
        return ClusterObservation(NoAnswer(str(known.connection)))
    async with make_client(known.connection) as client:
        return await observe(client, known, now)


def _land(claim: Claim, flight: asyncio.Task[ClusterObservation], now: Now) -> str:
    try:
        return store(claim, flight.result(), now())
    except ClaimLost:
        return f"Cluster {claim.cluster_id}: another poll took over; this one's answer was dropped."
    except Exception as error:  # the loop's edge: one cluster must not stop the others
        log.exception("cluster %s: its answer could not be stored", claim.cluster_id)
        return _postponed(claim, error, now)


def _postponed(claim: Claim, error: Exception, now: Now) -> str:
    try:
        postpone(claim, f"{type(error).__name__}: {error}"[:1000], now())
    except ClaimLost:
        return ""
    return f"Cluster {claim.cluster_id}: its answer could not be stored; tried again later."
