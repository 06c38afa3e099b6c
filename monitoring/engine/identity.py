"""Identify the cluster that answers, to detect that an address now leads to another cluster. Pure functions.

The identity comes from the engine's configuration (`/jobmanager/config`):

* The high-availability store, or the Kubernetes, YARN or Waymark name. It survives every restart and differs between
  clusters. Such an identity is *lasting*.
* Otherwise the addresses on which the engine listens. They survive a restart with the same configuration, but two
  clusters with the same configuration have the same addresses. Waymark cannot distinguish such clusters.
* `web.tmpdir`, where Flink puts a random ID of the process. The same process is the same cluster, even if other
  settings changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

_PROCESS = re.compile(r"flink-web-([0-9a-f-]{36})")
_LONGEST = 500
_HA_TYPE = ("high-availability.type", "high-availability")
_ZOOKEEPER = "high-availability.zookeeper.quorum"
_ADDRESSES = ("jobmanager.rpc.address", "jobmanager.rpc.port")


@dataclass(frozen=True)
class Identity:
    """A cluster's identity. It matches another if all `names` are equal and one of `servers` is common.

    An empty `servers` matches any.
    """

    kind: str
    names: Mapping[str, str]
    servers: tuple[str, ...] = ()
    process: str = ""

    @property
    def lasting(self) -> bool:
        return self.kind != "addresses"

    @property
    def reason(self) -> Reason:
        known = [(key, value) for key, value in self.names.items() if value]
        named = [EngineReason.PATH(path=value) if key == "path" else f"{key} {value}" for key, value in known]
        names = EngineReason.NAMES(names=named) if named else EngineReason.NAMELESS()
        return EngineReason.NAMES_AT(names=names, servers=",".join(self.servers)) if self.servers else names

    def __str__(self) -> str:
        return str(self.reason)

    def as_row(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        return cls(row["kind"], dict(row["names"]), tuple(row["servers"]), row["process"])


def identity_of(config: Mapping[str, str]) -> Identity | None:
    """Return the identity in the engine's configuration, None if the configuration has none."""
    config = {key: value[:_LONGEST] for key, value in config.items()}
    found = _PROCESS.search(config.get("web.tmpdir", ""))
    process = found[1] if found else ""
    ours = _waymark(config)
    if ours is not None:
        return ours
    high_availability = next((config[key].lower() for key in _HA_TYPE if config.get(key)), "none")
    cluster_id = config.get("high-availability.cluster-id", "")
    if high_availability.startswith("zookeeper"):
        root = config.get("high-availability.zookeeper.path.root", "/flink")
        names = {"path": root, "cluster-id": cluster_id or "/default"}
        return Identity("zookeeper", names, _servers(config.get(_ZOOKEEPER, "")), process)
    if config.get("kubernetes.cluster-id"):
        names = {key: config.get(f"kubernetes.{key}", "") for key in ("cluster-id", "namespace")}
        return Identity("kubernetes", names, (), process)
    if cluster_id.strip("/") not in ("", "default"):
        return Identity("name", {"cluster-id": cluster_id}, (), process)
    addresses = {key: config[key] for key in _ADDRESSES if config.get(key)}
    return Identity("addresses", addresses, (), process) if addresses or process else None


def same(known: Identity, found: Identity) -> bool:
    if known.process and known.process == found.process:
        return True
    if (known.kind, dict(known.names)) != (found.kind, dict(found.names)):
        return False
    return not known.servers or not found.servers or bool(set(known.servers) & set(found.servers))


def other_cluster_reason(url: str, known: Identity, found: Identity) -> Reason:
    return EngineReason.ANOTHER_CLUSTER(url=url, known=known.reason, found=found.reason)


def _waymark(config: Mapping[str, str]) -> Identity | None:
    """Return the identity of a Waymark job manager, whose settings have other names than Flink's."""
    if "state-directory" not in config or "cluster-id" not in config:
        return None
    names = {"cluster-id": config["cluster-id"]}
    if config.get("high-availability", "").upper() == "ZOOKEEPER":
        names["path"] = config.get("zookeeper-root", "")
        return Identity("waymark", names, _servers(config.get("zookeeper-hosts", "")))
    return Identity("waymark", {**names, "state-directory": config["state-directory"]})


def _servers(quorum: str) -> tuple[str, ...]:
    return tuple(sorted({server.strip().lower() for server in quorum.partition("/")[0].split(",") if server.strip()}))
