"""Where a job runs: its launcher, its Spark master and deploy mode, and what other machines must be able to reach.

    spark.master              the driver runs …                    the tasks run …
    local, local[n]           as a process of this machine         in the driver
    spark://host:port,…       as a process of this machine         on the standalone cluster's executors
    yarn, k8s://…   client    as a process of this machine         on the cluster's executors
    yarn, k8s://…   cluster   in the cluster                       on the cluster's executors

With the launcher `kubernetes` the driver is a pod instead of a process of this machine (kubernetes/launcher.py).

Executors write state files directly into the query's checkpointLocation, and the driver links them there. So with
executors on other machines, the job manager's state directory must be on storage that all of them see under one path.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from checkpointing.model.configuration import InvalidConfiguration

LAUNCHER = "waymark.launcher"
MASTER = "spark.master"
DEPLOY_MODE = "spark.submit.deployMode"
DEFAULT_PARALLELISM = 2
_HOST_AND_PORT = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/:,\[\]]+):\d{1,5}"
_FORMS = "local[n], spark://host:port, yarn or k8s://https://host:port"


class LauncherKind(Enum):
    PROCESS = "process"
    KUBERNETES = "kubernetes"


class ClusterManager(Enum):
    """The cluster manager of a Spark master. `value` is a pattern for its masters."""

    LOCAL = r"local(\[(\d+|\*)(, *\d+)?\])?"
    STANDALONE = rf"spark://{_HOST_AND_PORT}(,{_HOST_AND_PORT})*"
    YARN = r"yarn"
    KUBERNETES = r"k8s://(https?://)?[^\s/]+/?"


class DeployMode(Enum):
    CLIENT = "client"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class Deployment:
    master: str
    manager: ClusterManager
    mode: DeployMode

    @property
    def is_on_this_machine(self) -> bool:
        """Return whether driver and executors run here. A standalone master on loopback has all its workers here."""
        if self.manager is ClusterManager.LOCAL:
            return True
        hosts = self.master.removeprefix("spark://").split(",")
        return self.manager is ClusterManager.STANDALONE and all(is_loopback(f"//{host}") for host in hosts)

    @property
    def has_executors(self) -> bool:
        """Return whether separate processes run the tasks, here or elsewhere."""
        return self.manager is not ClusterManager.LOCAL

    @property
    def driver_is_in_the_cluster(self) -> bool:
        return self.mode is DeployMode.CLUSTER


@dataclass(frozen=True)
class Site:
    """The parts of this job manager that others can reach. `zookeeper_hosts` is "" without high availability."""

    storage_is_shared: bool
    address: str
    zookeeper_hosts: str = ""


def launcher_of(configuration: Mapping[str, str], default: LauncherKind) -> LauncherKind:
    """Return the launcher of the job's driver. Raise InvalidConfiguration."""
    value = configuration.get(LAUNCHER, "").strip().lower() or default.value
    if value not in {each.value for each in LauncherKind}:
        raise InvalidConfiguration(LAUNCHER, value, "process or kubernetes")
    return LauncherKind(value)


def deployment_of(
    configuration: Mapping[str, str], *, default_master: str = "", parallelism: int | None = None
) -> Deployment:
    """Return where the job runs. Raise InvalidConfiguration if a Python driver cannot run there."""
    master = configuration.get(MASTER, "").strip() or default_master or f"local[{parallelism or DEFAULT_PARALLELISM}]"
    manager = next((each for each in ClusterManager if re.fullmatch(each.value, master)), None)
    if manager is None:
        raise InvalidConfiguration(MASTER, master, f"write {_FORMS}")
    mode = configuration.get(DEPLOY_MODE, DeployMode.CLIENT.value).strip().lower()
    if mode not in {each.value for each in DeployMode}:
        raise InvalidConfiguration(DEPLOY_MODE, mode, "client or cluster")
    deployment = Deployment(master, manager, DeployMode(mode))
    if deployment.driver_is_in_the_cluster and manager in (ClusterManager.LOCAL, ClusterManager.STANDALONE):
        raise InvalidConfiguration(
            DEPLOY_MODE,
            mode,
            f"use client with {MASTER}={master}: only YARN and Kubernetes run Python drivers in the cluster",
        )
    return deployment


def check_reachable(deployment: Deployment, site: Site) -> None:
    """Raise InvalidConfiguration if another machine of the deployment cannot reach what it needs of this one."""
    if not deployment.is_on_this_machine and not site.storage_is_shared:
        raise InvalidConfiguration(
            MASTER,
            deployment.master,
            "use a master on this machine, because executors on other machines cannot write to this job manager's "
            "state "
            "directory. Or put that directory and the checkpoint directories on storage that all machines mount at the "
            "same path, and set WAYMARK_SHARED_STORAGE=true",
        )
    if not deployment.driver_is_in_the_cluster:
        return
    for name, address in loopback_servers(site):
        raise InvalidConfiguration(
            DEPLOY_MODE,
            deployment.mode.value,
            f"use client, because a driver in the cluster cannot reach {name}={address}",
        )


def loopback_servers(site: Site) -> list[tuple[str, str]]:
    """Return the settings, and their addresses, that a driver on another machine needs and cannot reach."""
    servers = (("WAYMARK_JOBMANAGER_ADDRESS", site.address), *_servers(site.zookeeper_hosts))
    return [(name, address.removeprefix("//")) for name, address in servers if is_loopback(address)]


def is_loopback(address: str) -> bool:
    """Return whether a URL, or `//host:port`, is on this machine."""
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _servers(zookeeper_hosts: str) -> list[tuple[str, str]]:
    return [("ZOOKEEPER_HOSTS", f"//{host.strip()}") for host in zookeeper_hosts.split(",") if host.strip()]
