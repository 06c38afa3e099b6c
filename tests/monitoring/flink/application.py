"""A real Flink in application mode: each start is a new cluster with one job, at the same REST address.

`python -m tests.monitoring.flink.application DIRECTORY SAVEPOINT [JOB_ID]` is the launch command. It starts a job
manager and a task manager, which outlive it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dashboard.stack.ports import LOOPBACK, any_free
from tests.flink_distribution import java_options
from tests.monitoring.flink.cluster import LOGGING, MEMORY, addresses
from tests.urls import read

_JOB_MANAGER = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"


class FlinkApplication:
    """The clusters that were started in a directory, oldest first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoints, self.savepoints = directory / "checkpoints", directory / "savepoints"
        self.archive = directory / "archive"  # of ended jobs, for a History Server

    @classmethod
    def prepare(
        cls, home: Path, java_home: Path, directory: Path, jar: bytes, main: str, arguments: list[str]
    ) -> FlinkApplication:
        """Store how to start clusters. `main` is the class of the job, with these arguments."""
        made = cls(directory)
        for each in (made.checkpoints, made.savepoints / "of-others", made.archive):
            each.mkdir(parents=True)
        (directory / "job.jar").write_bytes(jar)
        settings = {
            "home": str(home),
            "java": str(java_home / "bin" / "java"),
            "rest_port": any_free(),
            "main": main,
            "arguments": arguments,
        }
        (directory / "settings.json").write_text(json.dumps(settings))
        return made

    @property
    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "settings.json").read_text())
        return found

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.settings['rest_port']}"

    def command(self, *, fixes_id: bool = True) -> list[str]:
        arguments = ["{savepoint}", *(["{job_id}"] if fixes_id else [])]
        return [*self._command, *arguments]

    def begin(self, job_id: str) -> None:
        """Start the first cluster, without a savepoint."""
        subprocess.run([*self._command, "", job_id], check=True)

    @property
    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.monitoring.flink.application", str(self.directory)]

    def clusters(self) -> list[Path]:
        return sorted(self.directory.glob("cluster-*"))

    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs of the cluster that answers, none if none answers."""
        try:
            answer = json.loads(read(f"{self.url}/jobs/overview", timeout_s=5))
        except OSError:
            return []
        found: list[dict[str, Any]] = answer["jobs"]
        return found

    def is_archived(self, job_id: str) -> bool:
        """Return whether the archive of the job is complete. Flink may write it after its REST API is gone."""
        try:
            return any(json.loads(path.read_text())["archive"] for path in self.archive.rglob(job_id))
        except (OSError, ValueError):
            return False

    def start(self, savepoint: str, job_id: str) -> None:
        """Start a cluster: from the savepoint if it is not "", and with a random ID if it is ""."""
        directory = self.directory / f"cluster-{len(self.clusters()):02}"
        directory.mkdir()
        configuration = self._configuration() | addresses(self.settings["rest_port"], any_free())
        lines = [f"{key}: {json.dumps(value)}" for key, value in configuration.items()]
        (directory / "config.yaml").write_text("\n".join(lines) + "\n")
        (directory / "log4j.properties").write_text(LOGGING)
        options = [*(["--job-id", job_id] if job_id else []), *(["--fromSavepoint", savepoint] if savepoint else [])]
        job = ["--job-classname", self.settings["main"], *options, *self.settings["arguments"]]
        self._spawn(directory, "jm", _JOB_MANAGER, "320m", job)
        self._spawn(directory, "tm", _TASK_MANAGER, "400m", [])

    def kill(self) -> None:
        """Kill all processes of all clusters with SIGKILL."""
        for file in self.directory.glob("cluster-*/*.pid"):
            with suppress(ProcessLookupError):
                os.killpg(int(file.read_text()), signal.SIGKILL)
            file.unlink()

    def said(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-3000:] for file in self.directory.glob("cluster-*/*.log"))

    def _spawn(self, directory: Path, name: str, main: str, heap: str, arguments: list[str]) -> None:
        settings = self.settings
        classes = f"{settings['home']}/lib/*:{self.directory}/job.jar"
        java = [settings["java"], f"-Xmx{heap}", "-Xss512k", *java_options(), "-cp", classes]
        log = f"-Dlog4j.configurationFile=file:{directory}/log4j.properties"
        with (directory / f"{name}.log").open("wb") as output:
            process = subprocess.Popen(
                [*java, log, main, "--configDir", str(directory), *arguments],
                env={
                    **os.environ,
                    "FLINK_CONF_DIR": str(directory),
                    "FLINK_PLUGINS_DIR": f"{settings['home']}/plugins",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (directory / f"{name}.pid").write_text(str(process.pid))

    def _configuration(self) -> Mapping[str, object]:
        return {
            "jobmanager.bind-host": LOOPBACK,
            "taskmanager.host": LOOPBACK,
            "taskmanager.bind-host": LOOPBACK,
            "taskmanager.numberOfTaskSlots": 4,
            "taskmanager.cpu.cores": 2.0,
            **MEMORY,
            "io.tmp.dirs": str(self.directory),
            "parallelism.default": 2,
            "execution.checkpointing.interval": "1 s",
            "execution.checkpointing.dir": f"file://{self.checkpoints}",
            "execution.checkpointing.savepoint-dir": f"file://{self.savepoints}",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "jobmanager.archive.fs.dir": f"file://{self.archive}",
            "restart-strategy.type": "none",
            "heartbeat.interval": 1000,
            "heartbeat.timeout": 5000,
        }


if __name__ == "__main__":
    FlinkApplication(Path(sys.argv[1])).start(sys.argv[2], (*sys.argv, "")[3])
