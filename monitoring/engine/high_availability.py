"""What a Flink tells of its own high availability, of clusters that were given by their address: may a leader still
take up a job that was called dead, and for how long is that to be waited for?

A leader that loses the leadership may call a job FAILED; the next one starts what it finds in the store of jobs. Both
come to pass within the time that a leadership outlives its leader's silence: `lease`. Whoever answers after that either
never lost the leadership, so that its word is the last one, or has read the store already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from checkpointing.model.configuration import InvalidConfiguration, duration_ms
from monitoring import outbound
from monitoring.engine.zookeeper import Nobody, Quorum, look_for_job
from monitoring.outbound import Allowed, Resolve
from monitoring.outbound_http import cluster_policy
from monitoring.reasons.reason import Reason

_TYPE = ("high-availability.type", "high-availability")
_CLUSTER_ID = "high-availability.cluster-id"
_ROOT = "high-availability.zookeeper.path.root"
_QUORUM = "high-availability.zookeeper.quorum"
# Flink's own defaults, of HighAvailabilityOptions and KubernetesLeaderElectionConfiguration.
_ZOOKEEPER_LEASE = ("high-availability.zookeeper.client.session-timeout", timedelta(seconds=60))
_KUBERNETES_LEASE = ("high-availability.kubernetes.leader-election.lease-duration", timedelta(seconds=15))
# A restart that waits longer is given up: monitoring/recovery/attempt.py.
_LONGEST_LEASE = timedelta(minutes=5)
_ZOOKEEPER_PORT = 2181
# It may lie behind a wall: a recovery of many jobs waits for this one.
_LOOK_LIMIT_S = 3.0


@dataclass(frozen=True)
class HighAvailability:
    """`kind`: as it is told. `quorum`: where it keeps its jobs; None: not in ZooKeeper, or not told for certain."""

    kind: str
    lease: timedelta
    quorum: Quorum | None = None


def told_by(settings: Mapping[str, str]) -> HighAvailability | None:
    """From `/jobmanager/config`; None: nobody takes up a job of this cluster."""
    kind = next((settings[key].strip() for key in _TYPE if settings.get(key, "").strip()), "NONE")
    match kind.lower():
        case "none":
            return None
        case "zookeeper":
            return HighAvailability(kind, _lease(settings, *_ZOOKEEPER_LEASE), _quorum(settings))
        case "kubernetes":
            return HighAvailability(kind, _lease(settings, *_KUBERNETES_LEASE))
        case _:  # the class of a factory: Kubernetes' before Flink 1.17, or somebody's own
            of = _KUBERNETES_LEASE if "kubernetes" in kind.lower() else _ZOOKEEPER_LEASE
            return HighAvailability(kind, _lease(settings, *of))


def why_taken_up(available: HighAvailability, job_id: str, resolve: Resolve = outbound.resolve) -> Reason | str | None:
    """Why a leader may still start the job; "" when none will; None when that cannot be known from here.

    Blocking. ZooKeeper is asked where the engine says that it is, within the policy for addresses of clusters, and
    believed only where a leader of Flink is written down, too: elsewhere is not the place.
    """
    if available.quorum is None or (hosts := _allowed(available.quorum.hosts, resolve)) is None:
        return None
    quorum = Quorum(hosts, available.quorum.root, available.quorum.cluster_id)
    match look_for_job(quorum, job_id, _LOOK_LIMIT_S):
        case Nobody():
            return None
        case stored if stored.why:
            return stored.why
        case stored:
            return "" if stored.is_led else None


def _quorum(settings: Mapping[str, str]) -> Quorum | None:
    """Only of a cluster that tells its id: a default may be that of another one."""
    hosts, cluster_id = settings.get(_QUORUM, "").strip(), settings.get(_CLUSTER_ID, "").strip()
    if not hosts or not cluster_id:
        return None
    servers, _, chroot = hosts.partition("/")
    root = "/".join(part.strip("/") for part in (chroot, settings.get(_ROOT, "").strip() or "/flink") if part)
    return Quorum(servers, f"/{root}", cluster_id)


def _allowed(hosts: str, resolve: Resolve) -> str | None:
    """The addresses that were judged, as kazoo takes them; None when one of them may not be connected to."""
    found: list[str] = []
    for server in hosts.split(","):
        host = server.strip()
        place = host if host.rpartition("]")[2].count(":") == 1 else f"{host}:{_ZOOKEEPER_PORT}"
        judged = outbound.check(f"http://{place}", cluster_policy(), resolve)
        if not isinstance(judged, Allowed):
            return None
        found += [_server(address, judged.target.port) for address in judged.addresses]
    return ",".join(found)


def _server(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _lease(settings: Mapping[str, str], key: str, default: timedelta) -> timedelta:
    try:
        told = timedelta(milliseconds=duration_ms(key, settings[key]))
    except (KeyError, InvalidConfiguration, OverflowError):
        return default
    return min(told, _LONGEST_LEASE)
