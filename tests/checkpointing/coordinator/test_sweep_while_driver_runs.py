"""The files of a dead driver are removed while the next driver runs, without the files that the next one needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.coordinator.reasons import CheckpointFailureReason
from tests.checkpointing.coordinator.job_on_disk import JobOnDisk, surviving_stores

JOB_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def job(tmp_path: Path) -> JobOnDisk:
    """Return a job whose driver died in the middle of checkpoint 2, with the file `lost` in the pool."""
    job = JobOnDisk(tmp_path, JOB_ID, surviving_stores())
    job.checkpoint("kept")
    brings(job, "lost")
    job.coordinator.abort_pending(CheckpointFailureReason.TASK_FAILURE)
    job.work.clear()
    job.sweep_once_completed()
    return job


def brings(job: JobOnDisk, *names: str) -> None:
    """Let the driver write the files of the next checkpoint without acknowledging it."""
    job.trigger()
    job.begin_snapshot(*names)
    job.write_only(job.work[-1])


def pool(job: JobOnDisk) -> set[str]:
    return {path.name for path in Path(job.storage.job_directory, "shared").iterdir()}


def test_with_the_first_checkpoint_of_the_next_driver(job: JobOnDisk) -> None:
    assert pool(job) == {"kept", "lost"}

    job.checkpoint("kept")

    assert pool(job) == {"kept"}


def test_sweep_keeps_files_that_the_next_driver_uses_again(job: JobOnDisk) -> None:
    job.checkpoint("kept", "lost")

    assert pool(job) == {"kept", "lost"}


def test_sweep_waits_for_a_pending_checkpoint_that_may_use_the_file(job: JobOnDisk) -> None:
    job.trigger()
    job.begin_snapshot("kept")
    first = job.work[-1]
    brings(job, "lost", "new")
    second = job.work[-1]
    job.acknowledge(first, all_of_them=True)
    assert pool(job) == {"kept", "lost", "new"}

    job.acknowledge(second, all_of_them=True)

    assert pool(job) == {"kept", "lost", "new"}
    assert job.checkpoint("kept").checkpoint_id == 5


def test_sweep_removes_files_that_only_an_abandoned_checkpoint_used(job: JobOnDisk) -> None:
    job.trigger()
    job.begin_snapshot("kept")
    first = job.work[-1]
    brings(job, "lost")
    job.acknowledge(first, all_of_them=True)
    assert pool(job) == {"kept", "lost"}

    job.decline(job.work[-1])

    assert pool(job) == {"kept"}
