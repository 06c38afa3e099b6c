"""The counting query in two forms: as a job of a separate job manager, and as a bare script in a shell loop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from checkpointing.checkpoint_location.local_recovery import RECORD_NAME, LiveQueries
from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.model.messages import from_plain
from checkpointing.rest.client import JobManagerClient, RequestRefused

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "bench" / "programs" / "counting.py"
LIMIT_S = 180.0
_JOB_MANAGER = """
import asyncio, os
from checkpointing.main import run
from checkpointing.jobs.settings import JobManagerSettings
asyncio.run(run(JobManagerSettings.from_environ(os.environ)))
"""


def wait_for(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {LIMIT_S:.0f} s: {what}")
        time.sleep(0.02)


def commits(location: Path) -> dict[int, float]:
    """Return the commit time of each batch in a checkpointLocation, in epoch seconds."""
    found = {}
    for path in (location / "commits").glob("[0-9]*"):
        try:
            found[int(path.name)] = path.stat().st_mtime_ns / 1e9
        except FileNotFoundError:
            continue
    return found


class BareScript:
    """The script in a shell loop that restarts it. It has the session settings of a job, but no event log."""

    def __init__(
        self, directory: Path, arguments: Mapping[str, str], settings: Mapping[str, str] | None = None
    ) -> None:
        work = WorkDirectory(directory / "session")
        work.spark.mkdir(parents=True)
        ours = session_settings(work, 2, {})
        session = {key: value for key, value in ours.items() if not key.startswith("spark.eventLog.")}
        self.location = directory / "checkpoint"
        call = json.dumps([session, str(self.location), arguments])
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        with (directory / "log").open("wb") as log:
            self._shell = subprocess.Popen(
                ["sh", "-c", 'while true; do "$0" "$1" "$2"; done', sys.executable, str(PROGRAM), call],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def commits(self) -> dict[int, float]:
        return commits(self.location)

    def processes(self) -> list[psutil.Process]:
        """The driver's Python and its JVM."""
        return psutil.Process(self._shell.pid).children(recursive=True)

    def restarted(self) -> float:
        """Kill the script. Return the seconds until the restarted script commits a new batch."""
        killed, processes = time.time(), self.processes()
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, LIMIT_S)
        before = max(self.commits())
        wait_for("a new batch", lambda: max(self.commits(), default=0) > before)
        return min(at for batch, at in self.commits().items() if batch > before) - killed

    def stop(self) -> None:
        processes = self.processes()
        os.killpg(self._shell.pid, signal.SIGKILL)
        for process in processes:
            process.kill()
        self._shell.wait()


class ManagedJob:
    """A job manager with the query as its job, and `spares` spare drivers for the next attempt.

    `zookeeper` is the address of a ZooKeeper, or "" for a job manager without high availability.
    """

    def __init__(
        self,
        directory: Path,
        arguments: Mapping[str, str],
        configuration: Mapping[str, str],
        *,
        spares: int = 0,
        zookeeper: str = "",
    ) -> None:
        self._state = directory
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WAYMARK_JOBMANAGER_STATE": str(directory),
            "WAYMARK_JOBMANAGER_PORT": "0",
            "WAYMARK_SPARE_DRIVERS": str(spares),
            "PYTHONUNBUFFERED": "1",
            # A benchmark may stop a driver with SIGSTOP while it measures another one.
            "WAYMARK_HEARTBEAT_TIMEOUT": "600",
        }
        environment |= {"ZOOKEEPER_HOSTS": zookeeper, "WAYMARK_ZOOKEEPER_ROOT": f"/{directory.name}"}
        self._manager = subprocess.Popen(
            [sys.executable, "-c", _JOB_MANAGER], env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            self.job_id = self._submitted(arguments, configuration)
        except BaseException:
            self.stop()
            raise

    def _submitted(self, arguments: Mapping[str, str], configuration: Mapping[str, str]) -> str:
        assert self._manager.stdout is not None
        self.url = self._manager.stdout.readline().split()[3]
        self.client = JobManagerClient(self.url)
        wait_for("a leader", self._leads)
        words = [word for key, value in arguments.items() for word in (f"--{key}", value)]
        return self.client.run(
            self.client.upload(PROGRAM),
            {
                "entryClass": "counting.py:counting",
                "programArgsList": words,
                "parallelism": 2,
                "flinkConfiguration": {
                    "restart-strategy.type": "fixed-delay",
                    "restart-strategy.fixed-delay.attempts": "1000",
                    "restart-strategy.fixed-delay.delay": "0 s",
                    **configuration,
                },
            },
        )

    def _leads(self) -> bool:
        try:
            self.client.get("/overview")
        except RequestRefused:
            return False
        return True

    def attempt(self) -> AttemptRecord:
        record = JobDirectory(self._state / "jobs", self.job_id).read_record()
        assert record is not None
        return record

    def driver_pid(self) -> int:
        pid = self.attempt().pid
        assert pid is not None
        return pid

    def commits(self) -> dict[int, float]:
        return commits(Path(self.attempt().work_directory) / "queries" / "0-counting")

    def completed(self) -> int:
        return int(self.client.get(f"/jobs/{self.job_id}/checkpoints")["counts"]["completed"])

    def restarted(self) -> float:
        """Kill the driver. Return the seconds until the next attempt has committed a batch."""
        old = self.attempt()
        killed = time.time()
        os.killpg(self.driver_pid(), signal.SIGKILL)
        wait_for("the next attempt", lambda: self.attempt().attempt != old.attempt)
        wait_for("its state", lambda: self._started_after() is not None)
        restored = self._started_after() or 0
        wait_for("a new batch", lambda: max(self.commits(), default=0) > restored)
        return min(at for batch, at in self.commits().items() if batch > restored) - killed

    def _started_after(self) -> int | None:
        """Return the last batch in the state of the newest attempt, or None if its queries have not started."""
        record = Path(self.attempt().work_directory) / RECORD_NAME
        if not record.exists():
            return None
        [query] = from_plain(LiveQueries, json.loads(record.read_text())).queries
        return query.started_after

    def processes(self) -> list[psutil.Process]:
        """The driver's Python and its JVM."""
        driver = psutil.Process(self.driver_pid())
        return [driver, *driver.children(recursive=True)]

    def has_spare(self) -> bool:
        """Return whether a spare driver waits with a started session. Only the job manager and this log know it."""
        logs = (self._state / "spares").glob("*/driver.log")
        return any("waits for work" in log.read_text() for log in logs if not log.with_name("driver.json").exists())

    def stop(self) -> None:
        self._manager.send_signal(signal.SIGTERM)
        self._manager.wait(60)
