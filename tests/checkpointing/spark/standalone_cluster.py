"""A Spark standalone cluster on loopback. The jars of the installed PySpark contain its servers.

The cluster's Python finds the installed packages but, as on other machines, not this repository.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

_HOME = Path(pyspark.__file__).parent
_LIMIT_S = 60.0


class StandaloneCluster:
    """A master and its workers, each in a separate process group. `directory` has logs and the executors' files."""

    def __init__(self, directory: Path, master_port: int) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://127.0.0.1:{master_port}"
        self._port = master_port

    def start(self, workers: int, *, cores: int = 1, memory: str = "700m") -> None:
        master = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0")
        self._launch("master", "master.Master", *master)
        self._wait_for("master", "New state: ALIVE", 1)
        for number in range(workers):
            files = self._directory / f"worker-{number}"
            resources = ("--cores", str(cores), "--memory", memory, "--work-dir", str(files), "--webui-port", "0")
            self._launch(f"worker-{number}", "worker.Worker", "--host", "127.0.0.1", *resources, self.master)
        self._wait_for("master", "Registering worker", workers)

    def executors(self) -> list[int]:
        """Return the PIDs of the running executors."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                if b"CoarseGrainedExecutorBackend" in line and str(self._directory).encode() in _environment(entry):
                    found.append(int(entry.name))
        return sorted(found)

    def listening(self) -> set[str]:
        """Return the addresses that the cluster's servers and executors listen on."""
        ours = [*(process.pid for process in self._processes), *self.executors()]
        return {address for pid in ours for address in _listening(pid)}

    def stop(self) -> None:
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(_LIMIT_S)

    def _launch(self, name: str, server: str, *arguments: str) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
            "WAYMARK_TEST_CLUSTER": str(self._directory),
            # Executors inherit their worker's environment.
            "JDK_JAVA_OPTIONS": " ".join(filter(None, map(os.environ.get, ("JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")))),
        }
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{server}", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait_for(self, name: str, text: str, times: int) -> None:
        deadline = time.monotonic() + _LIMIT_S
        log = self._directory / f"{name}.log"
        while len(re.findall(re.escape(text), log.read_text())) < times:
            assert time.monotonic() < deadline, f"not {times} x {text!r} within {_LIMIT_S:.0f} s:\n{log.read_text()}"
            time.sleep(0.05)


def _environment(process: Path) -> bytes:
    return (process / "environ").read_bytes()


def _listening(pid: int) -> Iterator[str]:
    """Yield the hexadecimal addresses of the TCP sockets that the process listens on."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
            if found:
                inodes.add(found[1])
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                yield fields[1].rpartition(":")[0]
