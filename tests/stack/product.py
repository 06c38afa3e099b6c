"""The whole product, started as a user starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dashboard.management.commands.status import parts_now
from dashboard.stack.environment import EXTERNAL_VARIABLES, OWN_TOKEN
from dashboard.stack.record import PartRecord
from tests.urls import read
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("postgres", "redis", "zookeeper", "jobmanager", "worker", "beat", "web")


@dataclass
class Stack:
    var: Path
    environ: dict[str, str]
    process: subprocess.Popen[bytes]

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def parts(self) -> dict[str, PartRecord]:
        """Return the parts that `manage.py status` lists, without a new process."""
        return {part.name: part for part in parts_now(self.environ)}

    def url(self, part: str) -> str:
        return self.parts()[part].address

    @property
    def admin_password(self) -> str:
        return (self.var / "admin-password").read_text().strip()

    @property
    def log(self) -> str:
        return (self.var.parent / "up.log").read_text()

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the newest job of each name from the job manager."""
        jobs = self.get("/jobs/overview")["jobs"]
        return {job["name"]: job for job in sorted(jobs, key=lambda job: job["start-time"])}

    def get(self, path: str) -> Any:
        token = (self.var / OWN_TOKEN).read_text()
        return json.loads(read(self.job_manager + path, {"Authorization": f"Bearer {token}"}, timeout_s=60))

    @property
    def job_manager(self) -> str:
        if not hasattr(self, "_job_manager"):
            self._job_manager = self.url("jobmanager")
        return self._job_manager

    def keep_logs(self, directory: Path) -> None:
        """Copy all logs, so that the cause of a failed test can be found."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "up.log").write_text(self.log)
        for log in self.var.glob("jobmanager/jobs/*/*/driver.log"):
            shutil.copy(log, directory / f"driver-{log.parts[-3][:6]}-{log.parts[-2]}.log")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(240)


def start(directory: Path, *options: str, **settings: str) -> Stack:
    """Start the product, by default without the history pipeline, which needs another JVM."""
    environ = {
        **{name: value for name, value in os.environ.items() if name not in EXTERNAL_VARIABLES.values()},
        "WAYMARK_VAR": str(directory / "var"),
        "WAYMARK_HISTORY_PIPELINE": "off",
        **settings,
    }
    with (directory / "up.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "up", *options], cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT
        )
    stack = Stack(directory / "var", environ, process)
    eventually("every part is up", lambda: _all_up(stack), 240)
    return stack


def _all_up(stack: Stack) -> bool:
    if stack.process.poll() is not None:
        pytest.fail(f"up ended with {stack.process.returncode}:\n{stack.log[-4000:]}")
    parts = stack.parts()
    return all(parts[name].state == "up" for name in PARTS)
