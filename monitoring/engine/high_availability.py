"""Decide from Flink's settings whether a leader may still start a job that was reported FAILED, and how long to wait.

This is for clusters that are configured by their address. A leader that loses the leadership may report a job FAILED;
the next leader starts the jobs in Flink's job store. Both occur within `lease`, the time that a leadership outlives its
leader's last renewal. A leader that answers later either never lost the leadership or has already read the job store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from checkpointing.model.configuration import InvalidConfiguration, duration_ms
from monitoring import outbound
from monitoring.engine.zookeeper import Nobody, Quorum, find_stored_job
from monitoring.outbound import Allowed, Resolve
from monitoring.outbound_http import cluster_policy
from monitoring.reasons.reason import Reason

_TYPE = ("high-availability.type", "high-availability")
_CLUSTER_ID = "high-availability.cluster-id"
_ROOT = "high-availability.zookeeper.path.root"
_QUORUM = "high-availability.zookeeper.quorum"
# Flink's defaults, from HighAvailabilityOptions and KubernetesLeaderElectionConfiguration.
_ZOOKEEPER_LEASE = ("high-availability.zookeeper.client.session-timeout", timedelta(seconds=60))
_KUBERNETES_LEASE = ("high-availability.kubernetes.leader-election.lease-duration", timedelta(seconds=15))
# Recovery gives up a restart that waits longer: monitoring/recovery/attempt.py.
_LONGEST_LEASE = timedelta(minutes=5)
_ZOOKEEPER_PORT = 2181
# A firewall may block ZooKeeper, and the recovery of many jobs waits for this look-up.
_ZOOKEEPER_LIMIT_S = 3.0


@dataclass(frozen=True)
class HighAvailability:
    """A cluster's high availability. `kind` is Flink's setting.

    `quorum` is the ZooKeeper with its job store. It is None if the store is elsewhere or not certain.
    """

    kind: str
    lease: timedelta
    quorum: Quorum | None = None


def high_availability_of(settings: Mapping[str, str]) -> HighAvailability | None:
    """Read the settings of `/jobmanager/config`. Return None without high availability: no other leader exists."""
    kind = next((settings[key].strip() for key in _TYPE if settings.get(key, "").strip()), "NONE")
    match kind.lower():
        case "none":
            return None
        case "zookeeper":
            return HighAvailability(kind, _lease(settings, *_ZOOKEEPER_LEASE), _quorum(settings))
        case "kubernetes":
            return HighAvailability(kind, _lease(settings, *_KUBERNETES_LEASE))
        case _:  # the class name of a factory: Kubernetes before Flink 1.17, or a custom factory
            of = _KUBERNETES_LEASE if "kubernetes" in kind.lower() else _ZOOKEEPER_LEASE
            return HighAvailability(kind, _lease(settings, *of))


def find_recovery_reason(
    available: HighAvailability, job_id: str, resolve: Resolve = outbound.resolve
) -> Reason | str | None:
    """Return why a leader may still start the job, "" if none will, None if Waymark cannot find out.

    The call blocks. It connects to the ZooKeeper in the engine's settings, if the policy for cluster addresses allows
    it. The result counts only if a leader of Flink is stored there, too: otherwise it is another cluster's path.
    """
    if available.quorum is None or (hosts := _allowed(available.quorum.hosts, resolve)) is None:
        return None
    quorum = Quorum(hosts, available.quorum.root, available.quorum.cluster_id)
    match find_stored_job(quorum, job_id, _ZOOKEEPER_LIMIT_S):
        case Nobody():
            return None
        case stored if stored.why:
            return stored.why
        case stored:
            return "" if stored.is_led else None


def _quorum(settings: Mapping[str, str]) -> Quorum | None:
    """Return the quorum if the settings name the cluster ID: the default ID may belong to another cluster."""
    hosts, cluster_id = settings.get(_QUORUM, "").strip(), settings.get(_CLUSTER_ID, "").strip()
    if not hosts or not cluster_id:
        return None
    servers, _, chroot = hosts.partition("/")
    root = "/".join(part.strip("/") for part in (chroot, settings.get(_ROOT, "").strip() or "/flink") if part)
    return Quorum(servers, f"/{root}", cluster_id)


def _allowed(hosts: str, resolve: Resolve) -> str | None:
    """Return the resolved addresses for kazoo, or None if the policy forbids one of them."""
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
        lease = timedelta(milliseconds=duration_ms(key, settings[key]))
    except (KeyError, InvalidConfiguration, OverflowError):
        return default
    return min(lease, _LONGEST_LEASE)
