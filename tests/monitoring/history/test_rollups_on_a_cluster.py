"""The roll-up program, submitted as in docs/history.md, on a standalone cluster for more than one machine's load."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Max
from django.utils import timezone

from dashboard.stack.ports import any_free
from monitoring.history.packing import ENTRY_CLASS, pack
from monitoring.models import Checkpoint, CheckpointDeletion, RollupProgress
from tests.checkpointing.spark.standalone_cluster import StandaloneCluster
from tests.monitoring.history.test_changes import exact, figures
from tests.urls import read
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def cluster(tmp_path: Path, java_home: Path) -> Iterator[StandaloneCluster]:
    directory = tmp_path / "spark"
    directory.mkdir()
    started = StandaloneCluster(directory, any_free())
    try:
        started.start(workers=2, memory="1100m")  # Spark's default for an executor is 1 GB
        yield started
    finally:
        started.stop()


@contextlib.contextmanager
def job_manager(directory: Path, master: str) -> Iterator[str]:
    url = f"http://127.0.0.1:{(port := any_free())}"
    environment = {
        **os.environ,
        "WAYMARK_JOBMANAGER_PORT": str(port),
        "WAYMARK_JOBMANAGER_STATE": str(directory / "state"),
        "WAYMARK_HIGH_AVAILABILITY": "NONE",
        "SPARK_MASTER_URL": master,
    }
    with (directory / "job-manager.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "jobmanager"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
    try:
        eventually("the job manager answers", lambda: get(f"{url}/overview") is not None, 60)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def get(url: str) -> Any:
    try:
        return json.loads(read(url, timeout_s=5))
    except OSError:
        return None


def tasks_of(cluster_directory: Path) -> list[int]:
    """Return how many tasks each worker's executors received, according to their logs."""
    workers = sorted(cluster_directory.glob("worker-*"))
    logs = [[log.read_text() for log in worker.glob("app-*/*/stderr")] for worker in workers if worker.is_dir()]
    return [sum(text.count("Got assigned task") for text in texts) for texts in logs]


@dataclass
class Product:
    """A runner of the commands in docs/history.md."""

    url: str
    program: Path
    arguments: list[str]

    def submit(self, *options: str) -> str:
        """Submit the job and return its ID."""
        settings = [
            *("spark.executor.memory=500m", "execution.checkpointing.interval=1s"),
            # No task begins before both executors are registered. Otherwise a late executor would get no task.
            *("spark.cores.max=2", "spark.scheduler.minRegisteredResourcesRatio=1"),
            "spark.scheduler.maxRegisteredResourcesWaitingTime=300s",
        ]
        more = [part for argument in self.arguments for part in ("--arg", argument)]
        more += [part for setting in settings for part in ("--conf", setting)]
        text = self._manage("submit", f"{self.program}:{ENTRY_CLASS}", *options, *more)
        return re.findall("Submitted: job (.*)", text)[0]

    def cancel(self, job: str) -> None:
        self._manage("job", "cancel", job)

    def savepoint(self, job: str) -> str:
        return str(json.loads(self._manage("job", "savepoint", job, "--json"))["location"])

    def _manage(self, *command: str) -> str:
        answer = subprocess.run(
            [sys.executable, "manage.py", *command, "--jobmanager", self.url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout


def rolled_up(what: str) -> None:
    """Wait until all changes before this call are rolled up."""
    changed = Checkpoint.objects.aggregate(last=Max("changed_in"))["last"]
    deleted = CheckpointDeletion.objects.aggregate(last=Max("deleted_in"))["last"]
    last = max(changed or 0, deleted or 0)
    eventually(what, RollupProgress.objects.filter(done__gt=last).exists, 300)
    assert exact()


def test_roll_ups_are_exact_over_executors_a_kill_and_a_restore_from_an_older_savepoint(
    rows, cluster, dsn_file, tmp_path
):
    rows.now = timezone.now().replace(minute=30)
    dice = random.Random(9)
    runs = [rows.run(rows.job()) for _ in range(4)]
    for number in range(300):
        at = rows.ago(dice.random() * 100_000)  # rows of two days
        rows.checkpoint(dice.choice(runs), number + 1, triggered_at=at, **figures(dice))
    with job_manager(tmp_path, cluster.master) as url:
        program = pack(tmp_path / "waymark_history.zip")
        product = Product(url, program, [f"dsn-file={dsn_file}", "every=1 second", "rows-per-partition=20"])
        job = product.submit()
        rolled_up("the first batch")
        assert len(cluster.executors()) == 2
        savepoint = product.savepoint(job)

        os.kill(driver_of(job), signal.SIGKILL)
        Checkpoint.objects.filter(checkpoint_id__lt=40).update(end_to_end_duration=7)
        Checkpoint.objects.filter(checkpoint_id__range=(40, 50)).delete()
        rolled_up("what changed while it was dead")

        product.cancel(job)
        rows.failed(runs[0], 900, rows.ago(3), "Checkpoint expired before completing.")
        product.submit("--from-savepoint", savepoint)
        rolled_up("what changed after the savepoint, once more")
    assert min(tasks_of(tmp_path / "spark")) > 2


def driver_of(job: str) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_text()
            if "checkpointing.spark.driver" in command and job in command:
                return int(process.name)
    raise AssertionError(f"no driver of {job}")
