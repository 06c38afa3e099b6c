"""Keep `Cluster.rest_url` at the leader's address in ZooKeeper, for clusters that are found through ZooKeeper.

The watches run in the worker's process, in one thread each; reading a watch is cheap and never blocks. If ZooKeeper
does not answer, that proves nothing about any job. Waymark then polls the last known address, and `leader_problem`
stores the reason.
"""

from __future__ import annotations

import os
import threading
from datetime import datetime, timedelta

from monitoring.engine.connection import zookeeper_access_of
from monitoring.engine.errors import RequestNotSent
from monitoring.engine.zookeeper import Leader, LeaderWatch, Nobody, Quorum
from monitoring.models import Authentication, Cluster, Discovery
from monitoring.reasons.columns import store, stored
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

# The minimum interval between updates of `leader_named_at` for an unchanged leader.
_NOTED_EVERY = timedelta(minutes=1)

_lock = threading.Lock()
_watches: dict[tuple[int, Quorum], LeaderWatch] = {}


def quorum_of(cluster: Cluster) -> Quorum:
    """Return the cluster's quorum. Raise RequestNotSent if a secret cannot be read or a certificate cannot be used."""
    return Quorum(
        cluster.zookeeper_hosts,
        cluster.zookeeper_root,
        cluster.zookeeper_cluster_id,
        zookeeper_access_of(cluster),
        gets_secrets=cluster.authentication != Authentication.NONE,
    )


def follow(cluster: Cluster, now: datetime) -> None:
    """Update the cluster's row from the newest sighting of its watch. Does not wait for ZooKeeper."""
    if cluster.discovery != Discovery.ZOOKEEPER:
        return
    try:
        sighting = _watch(quorum_of(cluster)).sighting()
    except RequestNotSent as error:
        sighting = Nobody(error.reason)
    if sighting is not None:
        note(cluster, sighting, now)


def note(cluster: Cluster, sighting: Leader | Nobody, now: datetime) -> None:
    """Store a sighting in the cluster's row if it changes something."""
    before = (cluster.rest_url, stored(cluster, "leader_problem"), cluster.leader_named_at)
    match sighting:
        case Leader(address):
            fresh = cluster.leader_named_at is not None and now - cluster.leader_named_at < _NOTED_EVERY
            if cluster.rest_url != address or cluster.leader_problem or not fresh:
                cluster.rest_url, cluster.leader_named_at = address, now
                store(cluster, "leader_problem", "")
        case Nobody(why):
            store(cluster, "leader_problem", why)
    if cluster.pk and before != (cluster.rest_url, stored(cluster, "leader_problem"), cluster.leader_named_at):
        cluster.save(update_fields=["rest_url", "leader_problem", "leader_problem_value", "leader_named_at"])


def silence(cluster: Cluster, why: Reason | str) -> Reason | str:
    """Return why there is no answer: `why`, preceded by the leader's problem if the leader is not known."""
    if cluster.discovery != Discovery.ZOOKEEPER or not cluster.leader_problem:
        return why
    return EngineReason.LEADER_UNKNOWN_NO_ANSWER(why=stored(cluster, "leader_problem"), answer=why)


def forget_all() -> None:
    """End every watch of this process."""
    with _lock:
        ended = list(_watches.values())
        _watches.clear()
    for watch in ended:
        watch.close()


def _watch(quorum: Quorum) -> LeaderWatch:
    """Return the watch of the quorum. Each process has its own watches, because threads do not survive a fork."""
    key = (os.getpid(), quorum)
    with _lock:
        watch = _watches.get(key)
        if watch is None or not watch.alive:
            watch = _watches[key] = LeaderWatch(quorum)
        return watch
