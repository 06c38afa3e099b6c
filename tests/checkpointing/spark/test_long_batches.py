"""Batches that take longer than the checkpoint timeout, as jobs of a real job manager."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.chaos.cluster import Job, JobManagers
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "programs" / "long_batches.py"
TIMEOUT_S = 20
LIMIT_S = 600.0
LONG = ("many_tasks", "one_task", "function")


@pytest.fixture(scope="module")
def jobs(job_managers: JobManagers) -> dict[str, Job]:
    """Start all jobs at once, because they wait most of the time."""
    timeout = {"execution.checkpointing.timeout": f"{TIMEOUT_S}s"}
    return {name: Job(job_managers, PROGRAM, name, {}, **timeout) for name in (*LONG, "hangs")}


@pytest.mark.parametrize("name", LONG)
def test_a_batch_longer_than_the_timeout_ends_and_its_checkpoint_completes(jobs: dict[str, Job], name: str) -> None:
    job = jobs[name]

    def completed() -> bool:
        return bool(job.get("/checkpoints").get("counts", {}).get("completed", 0) >= 2)

    eventually("two checkpoints", completed, LIMIT_S)
    assert (job.record()["attempt"], job.exceptions()) == (1, "")
    job.cancel()


def test_a_batch_without_any_progress_fails_its_checkpoint_and_the_job_restarts(jobs: dict[str, Job]) -> None:
    job = jobs["hangs"]

    def failures() -> list[str]:
        failed = [each for each in job.get("/checkpoints").get("history", []) if each["status"] == "FAILED"]
        causes = [each["failure_message"] for each in failed]
        return [cause for cause in causes if "has not come to the end of batch 0" in cause]

    cause = eventually("a checkpoint that failed in the batch", failures)[-1]
    silence = re.search(r"It has made no progress for (\d+) s\.", cause)
    assert silence, cause
    assert int(silence[1]) >= TIMEOUT_S
    eventually("a restart", lambda: job.record().get("attempt", 0) >= 2)
    job.cancel()
