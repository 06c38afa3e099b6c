"""Starts drivers as processes of this machine, from spare drivers or new; for a driver in a cluster, its client.

A driver runs in a separate session: signals to the job manager's terminal do not reach it, and it outlives the job
manager.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from checkpointing.clock import Clock, SystemClock
from checkpointing.durable_files import append_privately, make_directory
from checkpointing.jobs.attempts import LOG_NAME
from checkpointing.jobs.launcher import DriverProcess, LaunchFailed
from checkpointing.jobs.launching.admission import Demand, Load
from checkpointing.jobs.launching.cluster import ClusterSubmission
from checkpointing.jobs.launching.control_groups import DriverGroup, DriverGroups, LimitedProcess, limit_of
from checkpointing.jobs.launching.demand import demand_of
from checkpointing.jobs.launching.deployment import (
    DEPLOY_MODE,
    MASTER,
    Deployment,
    Site,
    check_reachable,
    deployment_of,
)
from checkpointing.jobs.launching.environment import process_environment, program_environment
from checkpointing.jobs.launching.package import PACKAGE_ROOT
from checkpointing.jobs.launching.processes import (
    SPEC_NAME,
    AdoptedProcess,
    StartedProcess,
    command_line,
    write_private,
)
from checkpointing.jobs.launching.python import KEY, check_python, python_of
from checkpointing.jobs.launching.spare_driver import is_spare_running
from checkpointing.jobs.launching.spare_pool import DIRECTORY_NAME, SpareLimits, SparePool
from checkpointing.jobs.launching.temporary import TemporaryDirectories
from checkpointing.jobs.python_environments.source import ARCHIVE, REQUIREMENTS, check_source
from checkpointing.jobs.wheels import check_py_files
from checkpointing.masking import HIDDEN
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_environment import without_secrets
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import MalformedMessage

logger = logging.getLogger(__name__)

DRIVER_MODULE = "checkpointing.spark.driver"
SPARE_MODULE = "checkpointing.spark.spare"
_KUBERNETES_SECRET = "spark.kubernetes.driver.secretKeyRef.NAME"  # noqa: S105


class LocalDriverLauncher:
    """Launches drivers on this machine.

    `java_home` finds a Java, or raises LaunchFailed. `default_master` is for jobs that name none.
    `spares` is how many spare drivers wait for work. They and the work directories are in the state directory.
    `groups` limit the memory of drivers; None: no limit.
    `program_variables` names more variables of `environ` that drivers get, besides those that every program gets.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        java_home: Callable[[], Path],
        state_directory: Path,
        *,
        site: Site | None = None,
        default_master: str = "",
        spares: int = 0,
        spare_limits: SpareLimits | None = None,
        program_variables: Collection[str] = (),
        groups: DriverGroups | None = None,
        clock: Clock | None = None,
        module: str = DRIVER_MODULE,
        spare_module: str = SPARE_MODULE,
    ) -> None:
        self._module = module
        self._environ = program_environment(environ, program_variables)
        self._find_java = java_home
        self._java: Path | None = None
        self._site = site or Site(storage_is_shared=False, address="")
        self._default_master = default_master
        command = ["-m", spare_module]
        directory = state_directory / DIRECTORY_NAME
        self.temporaries = TemporaryDirectories(state_directory, is_shared=self._site.storage_is_shared)
        self._groups = groups
        self.spares = SparePool(
            spares,
            directory,
            command,
            self._environment,
            self.temporaries,
            clock or SystemClock(),
            spare_limits,
            on_started=self._limit_spare,
        )

    def check(self, graph: JobGraph) -> None:
        deployment = self._deployment(graph.configuration, graph.parallelism)
        check_reachable(deployment, self._site)
        if deployment.driver_is_in_the_cluster:
            _check_cluster_mode(graph.configuration)
        demand = demand_of(graph.configuration, deployment)
        if demand is not None:
            limit_of(graph.configuration, demand)

    def check_files(self, graph: JobGraph) -> None:
        check_files_here(graph.configuration)

    def demand_of(self, graph: JobGraph) -> Demand | None:
        return demand_of(graph.configuration, self._deployment(graph.configuration, graph.parallelism))

    @property
    def spare_load(self) -> Load:
        return self.spares.load

    def limit_spares(self, room: Load) -> None:
        self.spares.room = room

    def launch(self, spec: DriverSpec) -> DriverProcess:
        spec, deployment = self._placed(spec)
        work = Path(spec.work_directory)
        try:
            make_directory(work)
            spec_path = write_private(work / SPEC_NAME, json.dumps(spec.to_json(), indent=1))
            if deployment.driver_is_in_the_cluster:
                environment = {**self._environment(spec), **spec.environment.variables}
                return ClusterSubmission(environment, PACKAGE_ROOT).start(spec, deployment, spec_path)
            popen = self.spares.take(spec, spec_path) or self._started(spec, spec_path)
        except OSError as error:
            raise LaunchFailed(f"The driver could not be started: {error}") from error
        process = StartedProcess(popen, work)
        self.spares.wait_for(spec, process.has_ended)
        group = self._limited(popen.pid, spec)
        return process if group is None else LimitedProcess(process, *group)

    def adopt(
        self, pid: int | None, job_id: str, attempt: int, work_directory: Path, pod: str | None = None
    ) -> DriverProcess | None:
        if pid is None or not self._is_driver(pid, work_directory):
            return None
        process = AdoptedProcess(pid, work_directory)
        try:
            spec = DriverSpec.from_json(json.loads((work_directory / SPEC_NAME).read_text()))
        except (OSError, ValueError, MalformedMessage):
            return process
        self.spares.wait_for(spec, lambda: not process.is_alive())
        group = self._groups.of(pid) if self._groups is not None else None
        return process if self._groups is None or group is None else LimitedProcess(process, group, self._groups)

    def _limited(self, pid: int, spec: DriverSpec) -> tuple[DriverGroup, DriverGroups] | None:
        """Limit the memory of a driver that was just started. Return None if it runs without a limit."""
        if self._groups is None:
            return None
        try:
            demand = demand_of(spec.configuration, self._deployment(spec.configuration, spec.parallelism))
            if demand is None:
                return None
            return self._groups.place(pid, limit_of(spec.configuration, demand)), self._groups
        except (OSError, InvalidConfiguration) as error:
            logger.warning("driver %d of job %s runs without a memory limit: %s", pid, spec.job_id, error)
            return None

    def _limit_spare(self, pid: int, spec: DriverSpec) -> None:
        """Limit a spare driver at its start, because memory counts in the group where it was first used."""
        if (limited := self._limited(pid, spec)) is not None:
            group, groups = limited
            groups.release(group)

    def pod_of(self, configuration: Mapping[str, str], job_id: str, attempt: int) -> str | None:
        return None

    def end_spares(self) -> None:
        self.spares.close()
        self.temporaries.sweep()

    def _is_driver(self, pid: int, work: Path) -> bool:
        return str(work / SPEC_NAME) in command_line(pid) or is_spare_running(pid, work, self.spares.directory)

    def _deployment(self, configuration: Mapping[str, str], parallelism: int | None) -> Deployment:
        return deployment_of(configuration, default_master=self._default_master, parallelism=parallelism)

    def _placed(self, spec: DriverSpec) -> tuple[DriverSpec, Deployment]:
        """Return the specification with its master filled in, and the deployment."""
        try:
            deployment = self._deployment(spec.configuration, spec.parallelism)
            check_reachable(deployment, self._site)
            check_python(spec.configuration)  # the Python may have changed since the job was submitted
        except InvalidConfiguration as error:
            raise LaunchFailed(str(error)) from error
        return replace(spec, configuration={**spec.configuration, MASTER: deployment.master}), deployment

    def _started(self, spec: DriverSpec, spec_path: Path) -> subprocess.Popen[bytes]:
        environment = self._environment(spec)
        with self.temporaries.new() as temporary, append_privately(spec_path.parent / LOG_NAME) as log:
            return subprocess.Popen(
                [python_of(spec.configuration), "-m", self._module, str(spec_path)],
                cwd=spec_path.parent,
                env=process_environment(environment, temporary.path, spec),
                pass_fds=(temporary.lock,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self, spec: DriverSpec) -> dict[str, str]:
        deployment = self._deployment(spec.configuration, spec.parallelism)
        loopback = {"SPARK_LOCAL_IP": "127.0.0.1"} if deployment.is_on_this_machine else {}
        python_path = [str(PACKAGE_ROOT), *filter(None, [self._environ.get("PYTHONPATH")])]
        return {
            **self._environ,
            "JAVA_HOME": str(self._java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYTHONUNBUFFERED": "1",
            **loopback,
        }

    def _java_home(self) -> Path:
        """Return the Java home. Find it only once, because the search starts Java and would delay a restart."""
        if self._java is None or not self._java.exists():
            self._java = self._find_java()
        return self._java


def check_files_here(configuration: Mapping[str, str]) -> None:
    """Raise InvalidConfiguration for a Python, wheels or an environment that this machine cannot use. Blocks."""
    check_python(configuration)
    check_py_files(configuration)
    check_source(configuration)


def _check_cluster_mode(configuration: Mapping[str, str]) -> None:
    """Raise InvalidConfiguration for settings that a driver in the cluster must not have.

    Such a driver uses the cluster's Python, and the cluster's manager shows its environment.
    """
    for key in (KEY, REQUIREMENTS, ARCHIVE):
        if key in configuration:
            allowed = f"spark.pyspark.python instead, with {DEPLOY_MODE} cluster; spark.archives sends an environment"
            raise InvalidConfiguration(key, configuration[key], allowed)
    for key in configuration.keys() - without_secrets(configuration).keys():
        allowed = f"a secret of the cluster's own with {DEPLOY_MODE} cluster, such as {_KUBERNETES_SECRET}"
        raise InvalidConfiguration(key, HIDDEN, allowed)
