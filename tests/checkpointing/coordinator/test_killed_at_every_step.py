"""A job manager is killed (SIGKILL, a real one) between every two steps that it takes on the disk.

Then a recovery is killed, another one succeeds, and a checkpoint completes or the job ends. After that the directories
have only the retained checkpoints, the complete savepoints, and snapshots of an earlier job with the same ID.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointing.coordinator.reasons import CheckpointFailureReason
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.status import JobStatus
from checkpointing.storage import read_metadata, state_file_path, verify
from tests.checkpointing.coordinator.disk_machine import _fast_disk
from tests.checkpointing.coordinator.job_on_disk import JobOnDisk
from tests.checkpointing.coordinator.sigkill import is_killed_at
from tests.checkpointing.coordinator.stores_on_disk import stores_on_disk
from tests.profile import PROFILE

JOB_ID = "0123456789abcdef0123456789abcdef"
STRIDE = PROFILE.kill_every  # every step takes a minute on two cores


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    directory = Path(f"{_fast_disk() or tmp_path}/waymark-killed-{os.getpid()}")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def opened(directory: Path) -> JobOnDisk:
    return JobOnDisk(directory, JOB_ID, stores_on_disk(directory / "stores"))


def told(directory: Path) -> Path:
    """Return the file that records completed snapshots. It is outside the job manager's directory."""
    return directory.with_suffix(".told")


def life(directory: Path) -> None:
    """Do some of everything that a job manager does with checkpoints and savepoints."""
    job = opened(directory)

    def tell(snapshot: CompletedCheckpoint) -> None:
        with told(directory).open("a") as file:
            file.write(f"{snapshot.checkpoint_id} {snapshot.properties.is_savepoint} {snapshot.location}\n")

    tell(job.checkpoint("a"))
    tell(job.savepoint())
    tell(job.checkpoint("a", "b"))
    decline_half(job, job.trigger_savepoint, ())
    decline_half(job, job.trigger, ("b", "c"))
    tell(job.checkpoint("c"))  # an older checkpoint is subsumed
    lose_the_driver_of(job, ("d",))
    tell(job.savepoint())
    tell(job.checkpoint("c", "e"))
    tell(job.checkpoint("f"))


def decline_half(job: JobOnDisk, trigger: Callable[[], object], shared: tuple[str, ...]) -> None:
    trigger()
    job.begin_snapshot(*shared)
    [work] = job.work
    job.acknowledge(work)
    job.acknowledges_nothing_more(work)
    job.decline(work)


def lose_the_driver_of(job: JobOnDisk, shared: tuple[str, ...]) -> None:
    """Lose the driver in the middle of a checkpoint, so that its files in the pool are orphaned."""
    job.trigger()
    job.begin_snapshot(*shared)
    job.write_only(job.work[-1])
    job.coordinator.abort_pending(CheckpointFailureReason.TASK_FAILURE)
    job.work.clear()


@pytest.mark.parametrize(
    "has_earlier_life",
    [False, pytest.param(True, marks=pytest.mark.nightly)],
    ids=["first-life", "after-an-earlier-life"],
)
def test_a_kill_at_any_step_loses_no_checkpoint_and_leaves_no_files(root: Path, has_earlier_life: bool) -> None:
    step = STRIDE // 2 if has_earlier_life else 0
    while True:
        directory = root / str(step)
        directory.mkdir()
        told(directory).touch()
        earlier = earlier_life(directory) if has_earlier_life else []
        was_killed = is_killed_at(step, directory, functools.partial(life, directory))
        is_killed_at(step % 17, directory, functools.partial(opened, directory))
        check(directory, earlier, f"killed before step {step}")
        shutil.rmtree(directory)
        if not was_killed:
            break
        step += STRIDE
    assert step > 100


def earlier_life(directory: Path) -> list[CompletedCheckpoint]:
    job = opened(directory)
    for names in ("x", "y"):
        job.checkpoint(names)
    job.end(JobStatus.CANCELED)
    job.intents.abandon()
    return [read_metadata(str(directory / "checkpoints" / JOB_ID / f"chk-{number}")) for number in (1, 2)]


def check(directory: Path, earlier: list[CompletedCheckpoint], when: str) -> None:
    copy = shutil.copytree(directory, directory.with_suffix(".copy"))
    job = opened(directory)
    completed = [line.split(" ", 2) for line in told(directory).read_text().splitlines()]
    newest = max((int(number) for number, is_savepoint, _ in completed if is_savepoint == "False"), default=0)
    assert job.store.latest_id >= newest, f"{when}: a checkpoint that was completed is not restored from"
    job.checkpoint("a")
    savepoints = savepoints_below(directory)
    assert {location for _, is_savepoint, location in completed if is_savepoint == "True"} <= {
        savepoint.location for savepoint in savepoints
    }, f"{when}: a savepoint that was completed is gone"
    holds_exactly(directory, [*job.store.checkpoints, *savepoints, *earlier], when)

    shutil.rmtree(directory)
    Path(copy).rename(directory)
    assert opened(directory).end(JobStatus.FINISHED) == [None]
    holds_exactly(directory, [*savepoints_below(directory), *earlier], f"{when}, finished")
    told(directory).unlink()


def savepoints_below(directory: Path) -> list[CompletedCheckpoint]:
    return [read_metadata(str(path.parent)) for path in (directory / "savepoints").glob("*/_metadata")]


def holds_exactly(directory: Path, snapshots: list[CompletedCheckpoint], when: str) -> None:
    for snapshot in snapshots:
        verify(snapshot.location, deep=True)
    expected = files_of(snapshots)
    there = [path for name in ("checkpoints", "savepoints") for path in (directory / name).rglob("*")]
    assert {str(path) for path in there if path.is_file()} == expected, when
    in_use = {str(parent) for path in expected for parent in Path(path).parents}
    pool = {str(directory / "checkpoints" / JOB_ID / name) for name in ("shared", "taskowned")}
    assert {str(path) for path in there if path.is_dir()} <= in_use | pool, when
    assert list((directory / "intents").glob("*")) == [], when


def files_of(snapshots: list[CompletedCheckpoint]) -> set[str]:
    files = {state_file_path(snapshot, file) for snapshot in snapshots for file in snapshot.files}
    return files | {f"{snapshot.location}/_metadata" for snapshot in snapshots}
