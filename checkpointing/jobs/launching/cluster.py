"""Starts, follows and ends a driver inside a cluster through its client, spark-submit.

The client runs until the application has ended, so its process represents the driver's, and its exit code is the
application's. A driver in the cluster that lost its job manager ends by its lease and claim, as any other does.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.durable_files import append_privately
from checkpointing.jobs.attempts import LOG_NAME
from checkpointing.jobs.launcher import DriverProcess, LaunchFailed, Loss
from checkpointing.jobs.launching.deployment import Deployment
from checkpointing.jobs.launching.package import PACKAGE_NAME, zipped_package
from checkpointing.jobs.launching.processes import StartedProcess, write_private
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.jobs.launching.submission import (
    PROPERTIES_NAME,
    cluster_arguments,
    cluster_settings,
    kill_commands,
    properties_text,
)
from checkpointing.jobs.wheels import py_files, wheels_as_zips
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec

_KILL_S = 30.0


class ClusterSubmission:
    """Starts drivers through spark-submit. `environment` is that of the client.

    `package_root` holds the Python package that the driver runs.
    """

    def __init__(self, environment: Mapping[str, str], package_root: Path) -> None:
        self._environment = environment
        self._package_root = package_root

    def start(self, spec: DriverSpec, deployment: Deployment, spec_path: Path) -> DriverProcess:
        work = spec_path.parent
        settings = {
            **session_settings(WorkDirectory(work), spec.parallelism, spec.configuration),
            **cluster_settings(deployment, spec.job_id, spec.attempt, spec.environment.variables),
        }
        settings = _with_zips(settings, work)
        properties = write_private(work / PROPERTIES_NAME, properties_text(settings))
        spark_submit = self._spark_submit()
        arguments = cluster_arguments(
            deployment,
            spec.job_name,
            properties,
            package=zipped_package(work / PACKAGE_NAME, self._package_root),
            main_script=self._main_script(work),
            specification=spec_path,
            py_files=py_files(settings),
        )
        with append_privately(work / LOG_NAME) as log:
            popen = subprocess.Popen(
                [str(spark_submit), *arguments],
                cwd=work,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return SubmittedApplication(StartedProcess(popen, work), spec, deployment, spark_submit, self._environment)

    def _main_script(self, work: Path) -> Path:
        """Copy the main script into the work directory, as the cluster may not be able to read this installation."""
        source = self._package_root / "checkpointing" / "spark" / "submitted.py"
        return Path(shutil.copyfile(source, work / source.name))

    def _spark_submit(self) -> Path:
        """Return the spark-submit of SPARK_HOME, or of the installed PySpark."""
        home = self._environment.get("SPARK_HOME")
        found = find_spec("pyspark")
        places = (
            [Path(home)]
            if home
            else [Path(place) for place in (found.submodule_search_locations or [])]
            if found
            else []
        )
        for place in places:
            if (place / "bin" / "spark-submit").exists():
                return place / "bin" / "spark-submit"
        raise LaunchFailed(
            f"bin/spark-submit was not found in {', '.join(map(str, places)) or 'an installation of Spark'}."
        )


def _with_zips(settings: Mapping[str, str], work: Path) -> dict[str, str]:
    try:
        return wheels_as_zips(settings, WorkDirectory(work).wheels)
    except InvalidConfiguration as error:
        raise LaunchFailed(str(error)) from error


class SubmittedApplication:
    """A driver in a cluster. Ending the client does not end the application, so the cluster must end it."""

    left_nothing = False
    has_started = True
    loss: Loss | None = None

    def __init__(
        self,
        client: StartedProcess,
        spec: DriverSpec,
        deployment: Deployment,
        spark_submit: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._client = client
        self._spec = spec
        self._deployment = deployment
        self._spark_submit = spark_submit
        self._environment = environment

    @property
    def pid(self) -> int:
        return self._client.pid

    async def wait(self) -> int | None:
        return await self._client.wait()

    async def end(self, grace_s: float) -> None:
        if not self._client.has_ended():
            # Do not use a thread of asyncio: a call that hangs there would keep this process from ending.
            await asyncio.wrap_future(in_daemon_thread(self._kill_application, "kill-application"))
        await self._client.end(grace_s)

    def last_log_lines(self) -> str:
        return self._client.last_log_lines()

    def _kill_application(self) -> None:
        log = Path(self._spec.work_directory) / LOG_NAME
        text = log.read_text(errors="replace") if log.exists() else ""
        namespace = self._spec.configuration.get("spark.kubernetes.namespace", "default")
        for command in kill_commands(
            self._deployment, self._spark_submit, self._spec.job_id, self._spec.attempt, namespace, text
        ):
            with append_privately(log) as output, contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    command,
                    env=dict(self._environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_KILL_S,
                    check=False,
                )
