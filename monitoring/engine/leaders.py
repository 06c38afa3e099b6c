"""Keeps `Cluster.rest_url` at the leader that ZooKeeper names, for clusters that are found so.

The watches live in the worker's process, one thread each; asking them costs nothing and never waits. ZooKeeper being
away says nothing of any job: the last known address is asked on, and `leader_problem` says that nobody knows better.
"""

from __future__ import annotations

import os
import threading
from datetime import datetime, timedelta

from monitoring.engine.connection import zookeeper_access_of
from monitoring.engine.errors import NotAsked
from monitoring.engine.zookeeper import Leader, LeaderWatch, Nobody, Quorum
from monitoring.models import Authentication, Cluster, Discovery
from monitoring.reasons.columns import store, stored
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

# How often it is written down that the leader is still the same.
_NOTED_EVERY = timedelta(minutes=1)

_lock = threading.Lock()
_watches: dict[tuple[int, Quorum], LeaderWatch] = {}


def quorum_of(cluster: Cluster) -> Quorum:
    """Raises NotAsked when a secret cannot be read or a certificate cannot be used."""
    return Quorum(
        cluster.zookeeper_hosts,
        cluster.zookeeper_root,
        cluster.zookeeper_cluster_id,
        zookeeper_access_of(cluster),
        gets_secrets=cluster.authentication != Authentication.NONE,
    )


def follow(cluster: Cluster, now: datetime) -> None:
    """Bring the row up to what ZooKeeper says by now. Does not wait for it."""
    if cluster.discovery != Discovery.ZOOKEEPER:
        return
    try:
        sighting = _watch(quorum_of(cluster)).sighting()
    except NotAsked as error:
        sighting = Nobody(error.reason)
    if sighting is not None:
        note(cluster, sighting, now)


def note(cluster: Cluster, sighting: Leader | Nobody, now: datetime) -> None:
    """Write a sighting down, where it says something new."""
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
    """Return why there is no answer: that nobody knows who leads comes first."""
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
    """One for each quorum and process: threads do not survive a fork."""
    key = (os.getpid(), quorum)
    with _lock:
        watch = _watches.get(key)
        if watch is None or not watch.alive:
            watch = _watches[key] = LeaderWatch(quorum)
        return watch
