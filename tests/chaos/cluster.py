"""The target of the faults: job managers in separate processes with a ZooKeeper, and a job with its driver."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkpointing.rest.client import JobManagerClient, JobManagerUnreachable, RequestRefused
from dashboard.stack.ports import any_free
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0


class JobManagers:
    """Job managers with the same state directory and ZooKeeper root. Without `zookeeper_hosts`, there is only one."""

    def __init__(self, directory: Path, zookeeper_hosts: str, **environ: str) -> None:
        self.state = directory / "state"
        self._directory = directory
        self._environ = {
            **os.environ,
            "ZOOKEEPER_HOSTS": zookeeper_hosts,
            "WAYMARK_ZOOKEEPER_ROOT": f"/chaos-{uuid.uuid4().hex}",
            "WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "3",
            "WAYMARK_JOBMANAGER_STATE": str(self.state),
            "WAYMARK_HEARTBEAT_INTERVAL": "0.5",
            "WAYMARK_DRIVERS_ON_SHUTDOWN": "stop",
            **environ,
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> str:
        """Start another job manager, wait until it serves, and return its address."""
        port = any_free()
        address = f"http://127.0.0.1:{port}"
        log = self._directory / f"jobmanager-{port}.log"
        with log.open("wb") as file:
            self._processes[address] = subprocess.Popen(
                [sys.executable, "manage.py", "jobmanager"],
                cwd=ROOT,
                env={**self._environ, "WAYMARK_JOBMANAGER_PORT": str(port)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        eventually(f"{address} serves", lambda: _serves(self._processes[address], log), 60)
        return address

    def stop(self) -> None:
        """Stop all job managers. The last one ends the drivers."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait(LIMIT_S)

    def kill_leader(self) -> None:
        """Kill the leader with SIGKILL, and start a new standby, as a supervisor does."""
        leader = eventually("a leader", self.leader)
        process = self._processes.pop(leader)
        process.kill()
        process.wait()
        self.start()

    def leader(self) -> str | None:
        for address in self._processes:
            with contextlib.suppress(JobManagerUnreachable, RequestRefused):
                JobManagerClient(address).get("/overview")
                return address
        return None

    def client(self) -> JobManagerClient:
        return JobManagerClient(eventually("a leader", self.leader))


def _serves(process: subprocess.Popen[bytes], log: Path) -> bool:
    text = log.read_text()
    assert process.poll() is None, f"the job manager ended with exit code {process.returncode}:\n{text[-2000:]}"
    return "Job manager serves" in text


class Job:
    """A job. Its data comes from the leading job manager and from the files that job managers share."""

    def __init__(self, managers: JobManagers, program: Path, entry: str, arguments: Mapping[str, str], **conf: str):
        self._managers = managers
        client = managers.client()
        self.id = client.run(
            client.upload(program),
            {
                "entryClass": f"{program.stem}:{entry}",
                "programArgsList": [f"--{name}={value}" for name, value in arguments.items()],
                "flinkConfiguration": {
                    "execution.checkpointing.interval": "1s",
                    "execution.checkpointing.num-retained": "3",
                    "restart-strategy.type": "fixed-delay",
                    "restart-strategy.fixed-delay.attempts": "1000000",
                    "restart-strategy.fixed-delay.delay": "100 ms",
                    **conf,
                },
            },
        )

    def get(self, path: str = "") -> dict[str, Any]:
        """Return a response of the leader about the job, or {} if no leader responds."""
        leader = self._managers.leader()
        if leader is None:
            return {}
        try:
            return JobManagerClient(leader).get(f"/jobs/{self.id}{path}")
        except (JobManagerUnreachable, RequestRefused):
            return {}

    def is_running(self) -> bool:
        state = self.get().get("state")
        assert state not in ("FAILED", "FINISHED", "CANCELED"), self.exceptions()
        return bool(state == "RUNNING")

    def exceptions(self) -> str:
        history = self.get("/exceptions").get("exceptionHistory", {}).get("entries", [])
        return "\n".join(f"{each['exceptionName']}: {each['stacktrace'][:400]}" for each in history)

    def completed(self) -> dict[str, Any] | None:
        """Return the newest completed checkpoint, or None."""
        latest = self.get("/checkpoints").get("latest") or {}
        return latest.get("completed")

    def completed_id(self) -> int:
        return int((self.completed() or {}).get("id", 0))

    def cancel(self) -> None:
        self._managers.client().cancel(self.id)
        eventually("the job's end", lambda: self.get().get("state") == "CANCELED")

    # --- the driver ---

    @property
    def directory(self) -> Path:
        return self._managers.state / "jobs" / self.id

    def record(self) -> dict[str, Any]:
        """Return the stored record of the newest attempt, or {} if there is none."""
        try:
            return dict(json.loads((self.directory / "attempt.json").read_text()))
        except FileNotFoundError:
            return {}

    def driver(self) -> int:
        """Wait for a driver and return its pid, which is also the id of its process group."""
        return int(eventually("a driver", lambda: self.record().get("pid")))

    def signal_driver(self, number: signal.Signals, *, whole_group: bool = True) -> None:
        pid = self.driver()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number) if whole_group else os.kill(pid, number)

    def java_of_driver(self) -> int | None:
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError):
                name, _, rest = status.read_text().rpartition(")")
                if name.endswith("(java") and int(rest.split()[2]) == self.driver():
                    return int(status.parent.name)
        return None

    @property
    def live_locations(self) -> list[Path]:
        """Return the checkpointLocations of the current attempt."""
        return sorted(Path(self.record()["work_directory"]).glob("queries/*"))
