"""A real Flink session cluster on loopback: JobManagers and one TaskManager, whose processes a test may kill."""

from __future__ import annotations

import json
import subprocess
import urllib.error
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dashboard.stack.ports import LOOPBACK, several_free
from dashboard.stack.process import Command, spawn, stop
from tests.flink_distribution import java_options
from tests.urls import read
from tests.waiting import eventually

SLOTS = 8
_NOT_READY = "UnavailableDispatcherOperationException"
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# With all sizes given, Flink starts no extra JVM to compute them.
MEMORY = {
    f"taskmanager.memory.{part}": size
    for part, size in {
        "framework.heap.size": "128m",
        "framework.off-heap.size": "64m",
        "task.heap.size": "200m",
        "task.off-heap.size": "0m",
        "managed.size": "16m",
        "network.min": "32m",
        "network.max": "32m",
        "jvm-metaspace.size": "128m",
        "jvm-overhead.min": "64m",
        "jvm-overhead.max": "64m",
    }.items()
}
LOGGING = """rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1.} - %m%n
"""


class FlinkProcess:
    """One JVM with a separate configuration directory."""

    def __init__(self, name: str, main: str, home: Path, java_home: Path, directory: Path, heap: str) -> None:
        self.name = name
        self.directory = directory / name
        self.log = self.directory / "log"
        self._command = Command(
            argv=(
                *(str(java_home / "bin" / "java"), f"-Xmx{heap}", "-Xss512k", *java_options()),
                f"-Dlog4j.configurationFile=file:{self.directory}/log4j.properties",
                *("-cp", f"{home / 'lib'}/*", main, "--configDir", str(self.directory)),
            ),
            environment={"FLINK_CONF_DIR": str(self.directory), "FLINK_PLUGINS_DIR": str(home / "plugins")},
            directory=directory,
        )
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, configuration: Mapping[str, object]) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j.properties").write_text(LOGGING)
        lines = [f"{key}: {json.dumps(value)}" for key, value in configuration.items()]
        (self.directory / "config.yaml").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = spawn(self._command, log)

    def stop(self) -> None:
        if self._process is not None:
            stop(self._process, self._command)

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """Kill the process with SIGKILL, so that it cannot deregister."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """Return the end of the process's log."""
        return self.log.read_text(errors="replace")[-4000:]


class FlinkCluster:
    """A cluster. With ZooKeeper `hosts`, it has several `job_managers`, which compete for the leadership."""

    def __init__(
        self,
        home: Path,
        java_home: Path,
        directory: Path,
        *,
        job_managers: int = 1,
        hosts: str = "",
        configuration: Mapping[str, object] | None = None,
    ) -> None:
        self.directory = directory
        self.checkpoints, self.savepoints = directory / "checkpoints", directory / "savepoints"
        ports = several_free(2 * job_managers)
        self.rest_ports, rpc_ports = ports[:job_managers], ports[job_managers:]
        shared = {**self._configuration(hosts), **(configuration or {})}
        self.job_managers = [
            FlinkProcess(f"jm-{index}", _JOB_MANAGER, home, java_home, directory, "320m")
            for index in range(job_managers)
        ]
        for process, rest_port, rpc_port in zip(self.job_managers, self.rest_ports, rpc_ports, strict=True):
            process.configure({**shared, **addresses(rest_port, rpc_port)})
        self.task_manager = FlinkProcess("tm", _TASK_MANAGER, home, java_home, directory, "400m")
        self.task_manager.configure({**shared, **addresses(self.rest_ports[0], rpc_ports[0])})

    @property
    def urls(self) -> list[str]:
        return [f"http://{LOOPBACK}:{port}" for port in self.rest_ports]

    @property
    def url(self) -> str:
        return self.urls[0]

    def start(self) -> None:
        for process in (*self.job_managers, self.task_manager):
            process.start()
        self.wait_for_slots()

    def wait_for_slots(self) -> None:
        for url in self.urls:
            eventually(f"{url} has {SLOTS} slots", lambda url=url: self._has_slots(url))

    def stop(self) -> None:
        for process in (self.task_manager, *self.job_managers):
            process.stop()

    def said(self) -> str:
        return "\n".join(process.said() for process in (*self.job_managers, self.task_manager))

    def get(self, path: str, *, url: str = "") -> Any:
        """Request a path without Waymark's client, and return the answer."""
        return json.loads(read((url or self.url) + path, timeout_s=10))

    def found(self, path: str) -> Any:
        """Request a path like `get`. Return None if the object is missing (404) or the job is not created yet (500)."""
        try:
            return self.get(path)
        except urllib.error.HTTPError as error:
            if error.code == 404 or any(_NOT_READY in note for note in error.__notes__):
                return None
            raise

    def state(self, job_id: str) -> str:
        answer = self.found(f"/jobs/{job_id}")
        return "" if answer is None else str(answer["state"])

    def completed(self, job_id: str) -> int:
        answer = self.found(f"/jobs/{job_id}/checkpoints")
        return 0 if answer is None else int(answer["counts"]["completed"])

    def _has_slots(self, url: str) -> bool:
        for process in (*self.job_managers, self.task_manager):
            assert not process.ended, f"{process.name} ended:\n{process.said()}"
        try:
            return bool(self.get("/overview", url=url)["slots-total"] == SLOTS)
        except OSError:  # includes the HTTP errors of a cluster without a leader
            return False

    def _configuration(self, hosts: str) -> dict[str, object]:
        for directory in (self.checkpoints, self.savepoints, self.directory / "tmp"):
            directory.mkdir(parents=True, exist_ok=True)
        ordinary: dict[str, object] = {
            "jobmanager.bind-host": LOOPBACK,
            "taskmanager.host": LOOPBACK,
            "taskmanager.bind-host": LOOPBACK,
            "taskmanager.numberOfTaskSlots": SLOTS,
            "taskmanager.cpu.cores": 2.0,
            **MEMORY,
            "io.tmp.dirs": str(self.directory / "tmp"),
            "parallelism.default": 2,
            "execution.checkpointing.dir": f"file://{self.checkpoints}",
            "execution.checkpointing.savepoint-dir": f"file://{self.savepoints}",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.tolerable-failed-checkpoints": 1000,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 1000,
            "restart-strategy.fixed-delay.delay": "1 s",
            "heartbeat.interval": 1000,
            "heartbeat.timeout": 5000,
        }
        return ordinary | (self._high_availability(hosts) if hosts else {})

    def _high_availability(self, hosts: str) -> dict[str, object]:
        return {
            "high-availability.type": "zookeeper",
            "high-availability.storageDir": f"file://{self.directory}/ha",
            "high-availability.zookeeper.quorum": hosts,
            "high-availability.zookeeper.path.root": "/flink",
            "high-availability.cluster-id": f"/{self.directory.name}",
            "high-availability.zookeeper.client.session-timeout": 4000,
        }


def addresses(rest_port: int, rpc_port: int) -> dict[str, object]:
    return {
        "jobmanager.rpc.address": LOOPBACK,
        "jobmanager.rpc.port": rpc_port,
        "high-availability.jobmanager.port": str(rpc_port),
        "rest.address": LOOPBACK,
        "rest.bind-address": LOOPBACK,
        "rest.port": rest_port,
        "rest.bind-port": str(rest_port),
    }
