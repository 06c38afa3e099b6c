"""Selects the launcher that a job's configuration names: processes of this machine, or pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from checkpointing.jobs.launcher import DriverLauncher, DriverProcess, LaunchFailed, Loss
from checkpointing.jobs.launching.admission import Demand, Load
from checkpointing.jobs.launching.deployment import LAUNCHER, LauncherKind, launcher_of
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_graph import JobGraph

logger = logging.getLogger(__name__)


class ChosenLauncher:
    """A launcher that passes each job to the configured one.

    `pods` is None if no Kubernetes API is known, or the extra `kubernetes` is missing. `default` is for jobs that name
    no launcher.
    """

    def __init__(self, processes: DriverLauncher, pods: DriverLauncher | None, default: LauncherKind) -> None:
        self._processes = processes
        self._pods = pods
        self._default = default

    def check(self, graph: JobGraph) -> None:
        self._launcher_for(graph.configuration).check(graph)

    def check_files(self, graph: JobGraph) -> None:
        self._launcher_for(graph.configuration).check_files(graph)

    def demand_of(self, graph: JobGraph) -> Demand | None:
        return self._launcher_for(graph.configuration).demand_of(graph)

    @property
    def spare_load(self) -> Load:
        return self._processes.spare_load

    def limit_spares(self, room: Load) -> None:
        self._processes.limit_spares(room)

    def launch(self, spec: DriverSpec) -> DriverProcess:
        try:
            launcher = self._launcher_for(spec.configuration)
        except InvalidConfiguration as error:
            raise LaunchFailed(str(error)) from error
        return launcher.launch(spec)

    def pod_of(self, configuration: Mapping[str, str], job_id: str, attempt: int) -> str | None:
        """Return the attempt's pod, or None. An invalid configuration has none, because `launch` refuses it."""
        try:
            return self._launcher_for(configuration).pod_of(configuration, job_id, attempt)
        except InvalidConfiguration:
            return None

    def adopt(
        self, pid: int | None, job_id: str, attempt: int, work_directory: Path, pod: str | None = None
    ) -> DriverProcess | None:
        if pod is None:
            return self._processes.adopt(pid, job_id, attempt, work_directory)
        if self._pods is not None:
            return self._pods.adopt(pid, job_id, attempt, work_directory, pod)
        logger.warning("pod %s may live, but this job manager knows no Kubernetes API", pod)
        return PodOutOfReach()

    def end_spares(self) -> None:
        self._processes.end_spares()
        if self._pods is not None:
            self._pods.end_spares()

    def _launcher_for(self, configuration: Mapping[str, str]) -> DriverLauncher:
        kind = launcher_of(configuration, self._default)
        if kind is LauncherKind.PROCESS:
            return self._processes
        if self._pods is None:
            allowed = (
                "process, because the job manager knows no Kubernetes API, or lacks the extra kubernetes; "
                "set WAYMARK_KUBERNETES_API, and install the extra"
            )
            raise InvalidConfiguration(LAUNCHER, kind.value, allowed)
        return self._pods


class PodOutOfReach:
    """A pod that this job manager cannot reach. Only the driver's registration, lease and claim are known."""

    pid = None
    has_started = True
    loss: Loss | None = None
    left_nothing = False

    async def wait(self) -> int | None:
        await asyncio.get_running_loop().create_future()
        return None

    async def end(self, grace_s: float) -> None:
        """Do nothing: the driver ends when its lease is over."""

    def last_log_lines(self) -> str:
        return ""
