"""Batches that take longer than the checkpoint timeout, as jobs of a real job manager."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cluster import Job, JobManagers
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "programs" / "long_batches.py"
TIMEOUT = {"execution.checkpointing.timeout": "8s"}
LONG = ("many_tasks", "one_task", "function")


@pytest.fixture(scope="module")
def jobs(job_managers: JobManagers) -> dict[str, Job]:
    """Start all jobs at once, because they wait most of the time."""
    return {name: Job(job_managers, PROGRAM, name, {}, **TIMEOUT) for name in (*LONG, "hangs")}


@pytest.mark.parametrize("name", LONG)
def test_a_batch_longer_than_the_timeout_ends_and_its_checkpoint_completes(jobs: dict[str, Job], name: str) -> None:
    job = jobs[name]
    eventually("two checkpoints", lambda: job.get("/checkpoints").get("counts", {}).get("completed", 0) >= 2)
    assert (job.record()["attempt"], job.exceptions()) == (1, "")
    job.cancel()


def test_a_batch_without_any_progress_fails_its_checkpoint_and_the_job_restarts(jobs: dict[str, Job]) -> None:
    job = jobs["hangs"]
    eventually("a restart", lambda: job.record().get("attempt", 0) >= 2)
    failed = [each for each in job.get("/checkpoints")["history"] if each["status"] == "FAILED"]
    assert "has not come to the end of batch 0" in failed[-1]["failure_message"]
    assert "It has made no progress for 8 s." in failed[-1]["failure_message"]
    job.cancel()
