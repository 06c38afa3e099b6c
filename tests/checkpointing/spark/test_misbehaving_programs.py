"""Programs that misbehave, as jobs of a real job manager: each job ends with a reason, or continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs.launching.log_limit import LIMIT_BYTES
from dashboard.stack.ports import any_free
from tests.chaos.cluster import Job, JobManagers
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "programs" / "misbehaving.py"
NO_RESTART = {"restart-strategy.type": "none", "spark.sql.shuffle.partitions": "1"}


@pytest.fixture(scope="module")
def job_manager_settings() -> dict[str, str]:
    return {"WAYMARK_CANCEL_TIMEOUT": "2"}


@pytest.fixture(scope="module")
def jobs(job_managers: JobManagers) -> dict[str, Job]:
    """Start all jobs at once, so that their JVMs start in parallel."""
    names = ("stops_first", "stops_in_a_batch", "blocks", "chatters")
    return {name: Job(job_managers, PROGRAM, name, {}, **NO_RESTART) for name in names}


def failure(job: Job) -> dict[str, Any]:
    eventually("its end", lambda: job.get().get("state") == "FAILED")
    entry: dict[str, Any] = job.get("/exceptions")["exceptionHistory"]["entries"][0]
    return entry


def test_a_program_that_stops_spark_outside_of_a_batch_runs(jobs: dict[str, Job]) -> None:
    job = jobs["stops_first"]
    eventually("it runs", job.is_running)
    assert eventually("a checkpoint", job.completed)
    job.cancel()


def test_a_batch_that_stops_spark_fails_with_an_explanation(jobs: dict[str, Job]) -> None:
    found = failure(jobs["stops_in_a_batch"])
    assert found["exceptionName"] == "ContextStopped"
    assert "A program must not call stop(); the job manager stops it" in found["message"]


def test_a_program_that_prints_without_end_runs_and_does_not_fill_the_disk(jobs: dict[str, Job]) -> None:
    job = jobs["chatters"]
    eventually("it runs", job.is_running)
    log = Path(eventually("its directory", lambda: job.record().get("work_directory"))) / "driver.log"
    kept = log.with_name("driver.log.1")

    def was_cut() -> bool:  # while the program writes on
        return kept.exists() and kept.stat().st_size == 1 << 20 and log.stat().st_size < LIMIT_BYTES

    eventually("the log was cut", was_cut)
    assert eventually("a checkpoint", job.completed)
    job.cancel()


def test_a_program_that_never_returns_its_query_can_be_cancelled(jobs: dict[str, Job]) -> None:
    job = jobs["blocks"]
    log = Path(eventually("its directory", lambda: job.record().get("work_directory"))) / "driver.log"
    eventually("the program is called", lambda: "calls misbehaving:blocks" in log.read_text())
    assert job.get()["state"] != "RUNNING", "there is no query"
    pid = job.driver()
    job.cancel()
    eventually("its process is gone", lambda: not Path(f"/proc/{pid}").exists())


def test_a_master_that_cannot_be_reached_is_named(job_managers: JobManagers) -> None:
    """Spark tries to connect to its master for a minute."""
    master = f"spark://127.0.0.1:{any_free()}"
    found = failure(Job(job_managers, PROGRAM, "fine", {}, **{**NO_RESTART, "spark.master": master}))
    assert found["exceptionName"] == "ClusterRefused"
    assert found["message"] == f"Spark's master {master} did not take the job: All masters are unresponsive! Giving up."
