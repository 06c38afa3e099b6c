"""A fake application cluster of Flink: it runs one job and ends with it, and a launch command starts the next one."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.utils import timezone

from tests.monitoring.fake_job_manager import FakeJob, FakeJobManager

NAME = "flights"
OVERVIEW = {"taskmanagers": 1, "slots-total": 4, "slots-available": 2, "jobs-running": 1, "flink-version": "2.3.0"}


@dataclass
class FakeApplication(FakeJobManager):
    """Clusters that follow each other at one address. Each file in `started` is a cluster that was started.

    The file has the savepoint and the job's ID, which the cluster chooses if it is "". While no cluster is `up`, no
    request is answered. `shows_savepoint`: whether the result of a stop can be read before the cluster ends.
    """

    started: Path = Path()
    savepoint: str = ""  # the directory of the savepoint that a stop takes
    up: bool = False
    shows_savepoint: bool = False
    cancels: bool = True  # whether the job ends after the cluster has accepted a request to cancel it
    target: str = "embedded"  # execution.target; another value is not application mode
    ingress: tuple[int, bytes] | None = None  # the answer of a server in between while no cluster answers
    age_s: float = 0.0  # how long a job has run when its cluster appears
    answers_from: int = 0  # the number of polls before the newest cluster answers
    read: list[Path] = field(default_factory=list)
    now: Callable[[], datetime] = timezone.now

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        with self.lock:
            self._take_up()
            if self.up and self.answers_from:
                self.answers_from -= 1
                return self.ingress
            if self.up and path == "/overview":
                return 200, OVERVIEW
            return super().answer(method, path, body) if self.up else self.ingress

    def end(self, state: str) -> None:
        """End the newest cluster and its job, of which nobody reads the state."""
        with self.lock:
            self._take_up()
            for job in self.jobs.values():
                job.state = state
            self.up = False

    def launches(self) -> list[tuple[str, str]]:
        """Return the savepoint and the job ID of each cluster that was started."""
        return [tuple(json.loads(path.read_text())) for path in sorted(self.started.iterdir())]

    def command(self, *, fixes_id: bool = True, then: str = "") -> list[str]:
        """Return a launch command that starts a cluster."""
        script = self.started.parent / "start.py"
        script.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys, time\n"
            f"place = {str(self.started)!r}\n"
            "name = f'{time.time_ns()}'\n"
            "open(f'{place}.new', 'w').write(json.dumps([sys.argv[1], (*sys.argv, '')[2]]))\n"
            "os.rename(f'{place}.new', f'{place}/{name}')\n"
            f"{then}\n"
        )
        script.chmod(0o755)
        return [str(script), "{savepoint}", *(["{job_id}"] if fixes_id else [])]

    def start(self, job_id: str) -> None:
        """Start the first cluster."""
        with self.lock:
            (self.started / "0").write_text(json.dumps(["", job_id]))
            self._take_up()

    def _take_up(self) -> None:
        for path in sorted(set(self.started.iterdir()) - set(self.read)):
            self.read.append(path)
            savepoint, job_id = json.loads(path.read_text())
            job = FakeJob(job_id or f"{len(self.read):032x}", NAME, "RUNNING", savepoint or None)
            self.jobs, self.up = {job.id: job}, True
            self.config = {
                "execution.target": self.target,
                "jobmanager.rpc.address": "127.0.0.1",
                "jobmanager.rpc.port": str(6000 + len(self.read)),
                "execution.checkpointing.savepoint-dir": self.savepoint,
                "web.tmpdir": f"/tmp/flink-web-{len(self.read):08x}-0000-0000-0000-000000000000",
            }
            self.started_at = self.now().timestamp() - self.age_s

    def _overview(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = super()._overview(parts, body)
        for job in answer["jobs"]:
            job["start-time"] = round(self.started_at * 1000)
            job["last-modification"] = job["start-time"]
            job["duration"] = 1
        return status, answer

    def _cancel(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.cancels:
            threading.Timer(0, self.end, ["CANCELED"]).start()
        return 202, {}

    def _stop(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        answer = self._trigger(parts, body, stops=True)
        if not self.shows_savepoint:
            threading.Timer(0, self.end, ["FINISHED"]).start()
        return answer
