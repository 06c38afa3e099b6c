"""The two engines of `bench.recovery`, each with one job that can be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.counting_jobs import ManagedJob, wait_for
from checkpointing.java import find_java
from tests.flink_distribution import flink_home
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.jobs import CountJobs
from tests.monitoring.flink.program import compile_jobs, packed

SETTINGS = {
    "execution.checkpointing.interval": "2 s",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "restart-strategy.type": "none",
}


def _ask(url: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
    """Send a request and return the JSON response. Raise LookupError for status 404."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise LookupError(url) from error
        raise


class FlinkEngine:
    name = job_name = "flink"

    def __init__(self, jobs: CountJobs, output: Path) -> None:
        self.url = jobs.flink.url
        self._jobs, self._output = jobs, output
        self._arguments = [str(jobs.switches), str(output)]
        jobs.start(self.job_name, configuration=SETTINGS, program_args=self._arguments[1:])

    @property
    def launch(self) -> dict[str, Any]:
        record = {"kind": "flink-jar", "jar_id": self._jobs.jar_id, "parallelism": 2, "entry_class": None}
        return record | {"program_args": self._arguments, "configuration": SETTINGS}

    def kill(self) -> None:
        self._jobs.turn("fail", on=True)

    def repair(self) -> None:
        self._jobs.turn("fail", on=False)

    def start_bare(self, job_id: str, state: str) -> None:
        body = {
            "jobId": job_id,
            "parallelism": 2,
            "programArgsList": [self._arguments[0], str(self._output.with_name("bare"))],
            "savepointPath": state,
            "flinkConfiguration": SETTINGS | {"pipeline.name": "bare"},
        }
        _ask(f"{self.url}/jars/{self._jobs.jar_id}/run", "POST", body)

    def stop_bare(self, job_id: str) -> None:
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/jobs/{job_id}?mode=cancel", method="PATCH"), timeout=30
        ).close()
        wait_for("the bare job has ended", lambda: self.get(f"/jobs/{job_id}")["state"] == "CANCELED")

    def get(self, path: str) -> Any:
        return _ask(self.url + path)


class SparkEngine:
    name = job_name = "counting"

    def __init__(self, job: ManagedJob) -> None:
        self._job = job
        self.url = job.url
        self.launch: dict[str, Any] = {}  # the job manager reports the launch record

    def kill(self) -> None:
        """Kill the driver, Python and JVM. The job has no restart strategy, so the engine does not restart it."""
        (newest,) = [job for job in self.get("/jobs/overview")["jobs"] if job["state"] == "RUNNING"]
        self._job.job_id = newest["jid"]
        os.killpg(self._job.driver_pid(), signal.SIGKILL)

    def repair(self) -> None: ...

    def start_bare(self, job_id: str, state: str) -> None:
        launch = _ask(f"{self.url}/jobs/{self._job.job_id}/config")["launch"]
        _ask(
            f"{self.url}/jars/{launch['jarId']}/run",
            "POST",
            {
                "jobId": job_id,
                "entryClass": launch["entryClass"],
                "programArgsList": launch["programArgsList"],
                "parallelism": launch["parallelism"],
                "savepointPath": state,
                "flinkConfiguration": launch["flinkConfiguration"] | {"pipeline.name": "bare"},
            },
        )

    stop_bare = FlinkEngine.stop_bare
    get = FlinkEngine.get


@contextmanager
def flink(directory: Path) -> Iterator[FlinkEngine]:
    home = flink_home()
    java = find_java(os.environ, directory / "java").home
    jar = packed(
        compile_jobs(home, java, directory / "jar"), "LedgerJob", {"ledger.properties": "version=1\nuid=ledger"}
    )
    cluster = FlinkCluster(home, java, directory / "cluster", configuration={"restart-strategy.type": "none"})
    try:
        cluster.start()
        with CountJobs(cluster, jar, directory) as jobs:
            yield FlinkEngine(jobs, directory / "out")
    finally:
        cluster.stop()


@contextmanager
def pyspark(directory: Path) -> Iterator[SparkEngine]:
    directory.mkdir()
    job = ManagedJob(directory, {"rows": "1000", "keys": "100", "every": "2 seconds"}, SETTINGS)
    try:
        wait_for("a checkpoint", lambda: job.completed() > 1)
        yield SparkEngine(job)
    finally:
        job.stop()
        shutil.rmtree(directory, ignore_errors=True)
