"""Identify the cluster that answers, to detect that an address now leads to another cluster. Pure functions.

The identity comes from the engine's configuration (`/jobmanager/config`):

* The high-availability store, or the Kubernetes, YARN or Waymark name. It survives every restart and differs between
  clusters. Such an identity is *lasting*.
* Otherwise the addresses on which the engine listens. They survive a restart with the same configuration, but two
  clusters with the same configuration have the same addresses. Waymark cannot distinguish such clusters.
* `web.tmpdir`, where Flink puts a random ID of the process. The same process is the same cluster, even if other
  settings changed.

The configuration also shows whether the cluster ends with its job: `Application`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from monitoring.engine.answers import ManagerConfig
from monitoring.engine.high_availability import high_availability_of
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

_PROCESS = re.compile(r"flink-web-([0-9a-f-]{36})")
_LONGEST = 500
_HA_TYPE = ("high-availability.type", "high-availability")
_ZOOKEEPER = "high-availability.zookeeper.quorum"
_ADDRESSES = ("jobmanager.rpc.address", "jobmanager.rpc.port")
# The values of `execution.target` in a cluster of application mode, for any platform, and in one of per-job mode.
_ONE_JOB = ("embedded", "yarn-per-job")


@dataclass(frozen=True)
class Application:
    """An application cluster of Flink: it has one job and ends with it, so that its REST API is gone soon after.

    `takeover_s`: how long another job manager may need to take the job over, 0 without high availability.
    `savepoints`: the directory of its savepoints, "" if none is configured.
    """

    takeover_s: float = 0.0
    savepoints: str = ""


@dataclass(frozen=True)
class Identity:
    """A cluster's identity. It matches another if all `names` are equal and one of `servers` is common.

    An empty `servers` matches any. `application` is None for a cluster that does not end with its job.
    """

    kind: str
    names: Mapping[str, str]
    servers: tuple[str, ...] = ()
    process: str = ""
    application: Application | None = None

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
        return cls(row["kind"], dict(row["names"]), tuple(row["servers"]), row["process"], application_in(row))


def application_in(row: Mapping[str, Any] | None) -> Application | None:
    """Return the application in a stored identity. None: there is none, or an earlier version stored the identity."""
    found = (row or {}).get("application")
    return Application(found["takeover_s"], found["savepoints"]) if found else None


def identity_of(config: Mapping[str, str]) -> Identity | None:
    """Return the identity in the engine's configuration, None if the configuration has none."""
    config = {key: value[:_LONGEST] for key, value in config.items()}
    found = _identity(config)
    return None if found is None else replace(found, application=_application(config))


def _application(config: Mapping[str, str]) -> Application | None:
    """Return the application if the cluster runs in application mode, or has one job as in YARN's per-job mode."""
    shuts_down = config.get("execution.shutdown-on-application-finish", "true").strip().lower() == "true"
    if config.get("execution.target", "").strip() not in _ONE_JOB or not shuts_down:
        return None
    available = high_availability_of(config)
    return Application(
        takeover_s=0.0 if available is None else available.lease.total_seconds(),
        savepoints=ManagerConfig(config).savepoint_directory,
    )


def _identity(config: Mapping[str, str]) -> Identity | None:
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
