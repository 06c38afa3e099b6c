# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""An attempt that restores a snapshot gets batch numbers that no other attempt of its family has (decision 132)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.jobs.batch_numbers import GAP, LIMIT, BatchNumberCounters
from checkpointing.jobs.launcher import LaunchFailed
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.messages import BatchNumbersExtended, JobManagerMessage
from checkpointing.rest.client import RequestRefused
from checkpointing.storage import read_metadata
from checkpointing.storage.metadata import encode_metadata
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import FakeDriver, FakeProcess
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.checkpointing.jobs.test_job_master import FAST_RESTART
from tests.checkpointing.jobs.test_local_recovery import exceptions, fails

NEVER_RESTART = {"restart-strategy.type": "none"}
SNAPSHOT_BATCH = 7  # the batch of every snapshot of a fake driver


def counter(manager: RunningJobManager, family: str) -> Path:
    return manager.settings.state_directory / "batch-numbers" / f"{family}.json"


def counted(manager: RunningJobManager, family: str) -> int:
    """Return the end of the newest range from the counter's file."""
    return int(json.loads(counter(manager, family).read_text())["end"])


def record(manager: RunningJobManager, job_id: str) -> AttemptRecord:
    found = JobDirectory(manager.settings.state_directory / "jobs", job_id).read_record()
    assert found is not None
    return found


async def reports(manager: RunningJobManager, job_id: str, batch: int) -> bool:
    """Return whether the job manager knows from a heartbeat that the job has run `batch`."""
    return f" {batch}," in json.dumps(await manager.get(f"/jobs/{job_id}"))


async def failed(manager: RunningJobManager, number: int) -> FakeDriver:
    """Let attempt `number - 1` fail. Return the driver of attempt `number`."""
    await (await manager.driver(number - 1)).report_failure("crash")
    return await manager.driver(number)


async def test_each_restore_gets_the_next_numbers_and_they_are_durable_before_the_driver_starts(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: list[tuple[object, BatchNumbers | None]] = []
    launch = manager.launcher.launch

    def sees(spec: DriverSpec) -> FakeProcess:
        durable.append((counted(manager, spec.job_id), record(manager, spec.job_id).batch_numbers))
        return launch(spec)

    monkeypatch.setattr(manager.launcher, "launch", sees)
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    second = await failed(manager, 2)
    await manager.until(job_id, "RUNNING")
    third = await failed(manager, 3)
    ranges = [BatchNumbers(job_id, first, first + 10_000) for first in (0, 10_000, 20_000)]
    assert durable == [(numbers.end, numbers) for numbers in ranges]
    assert (await manager.driver(1)).spec.batch_numbers is None, "without state there is nothing to renumber"
    assert [second.spec.batch_numbers, third.spec.batch_numbers] == ranges[1:]


async def test_a_snapshot_names_the_family_and_the_range(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    await failed(manager, 2)
    await manager.until(job_id, "RUNNING")
    newest = await manager.checkpoint(job_id)
    metadata = read_metadata(str(Path(manager.settings.checkpoint_directory, job_id, f"chk-{newest}")))
    assert metadata.batch_numbers == BatchNumbers(job_id, 10_000, 20_000)


async def test_jobs_that_start_from_one_savepoint_share_the_counter(manager: RunningJobManager) -> None:
    first = await manager.submit_running(FAST_RESTART)
    location = (await manager.savepoint(first))["location"]
    clones = [await manager.submit_running(FAST_RESTART, savepointPath=location) for _ in range(2)]
    await manager.checkpoint(clones[1])
    await manager.launcher.drivers[0].report_failure("the first job has no checkpoint")
    await manager.launcher.drivers[2].report_failure("crash")
    await eventually(lambda: len(manager.launcher.drivers) == 5)
    restored = [driver.spec for driver in manager.launcher.drivers if driver.spec.batch_numbers is not None]
    assert [(spec.job_id, spec.batch_numbers) for spec in restored] == [
        (clones[0], BatchNumbers(first, 10_000, 20_000)),
        (clones[1], BatchNumbers(first, 20_000, 30_000)),
        (clones[1], BatchNumbers(first, 30_000, 40_000)),
    ]
    assert counter(manager, first).exists()
    assert not any(counter(manager, clone).exists() for clone in clones)


async def test_a_driver_gets_the_lowest_batch_that_its_query_restored_since_the_snapshot(
    manager: RunningJobManager,
) -> None:
    """A query that keeps its batch numbers has replaced rows of the restored state."""
    job_id = await manager.submit_running(FAST_RESTART)
    driver, locations = await manager.driver(1), {}
    for batch in (4, 7):
        driver.snapshot_batches = {"wordcount": batch}
        locations[batch] = (await manager.savepoint(job_id))["location"]
    for batch in (7, 4, 4, 7):
        await manager.submit_running(FAST_RESTART, savepointPath=locations[batch])
    result = [spec.restore.restored_since for spec in manager.launcher.specs if spec.restore is not None]
    assert result == [{}, {}, {}, {"wordcount": 4}]


async def test_a_state_whose_batches_were_replaced_is_refused_before_anything_is_started(
    manager: RunningJobManager,
) -> None:
    """A program that no longer keeps its batch numbers may still be started."""
    manager.launcher.repeats_numbers = True
    job_id = await manager.submit_running(FAST_RESTART)
    driver, locations = await manager.driver(1), {}
    for batch in (4, 7):
        driver.snapshot_batches = {"wordcount": batch}
        locations[batch] = (await manager.savepoint(job_id))["location"]
    assert (await manager.post("/savepoints/validate", {"savepointPath": locations[7]}))["valid"]
    await manager.submit_running(FAST_RESTART, savepointPath=locations[4])
    verdict = await manager.post("/savepoints/validate", {"savepointPath": locations[7]})
    assert not verdict["valid"]
    assert verdict["reason"].startswith("Query 'wordcount' cannot be restored from savepoint ")
    with pytest.raises(RequestRefused, match="was restored to batch 4 after that savepoint was taken"):
        await manager.submit(FAST_RESTART, savepointPath=locations[7])
    assert (await manager.post("/savepoints/validate", {"savepointPath": locations[4]}))["valid"]
    await manager.submit_running(FAST_RESTART, savepointPath=locations[7], allowNonRestoredState=True)


async def test_numbers_reserved_for_an_attempt_that_never_started_are_not_reused(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempt 2 ends before its record is written, and the next one before its driver is launched."""
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    write, launch = JobDirectory.write_record, manager.launcher.launch

    def write_record(directory: JobDirectory, written: AttemptRecord, confirm_term: Callable[[], None]) -> None:
        if written.batch_numbers == BatchNumbers(job_id, 10_000, 20_000):
            raise OSError("the disk is full")
        write(directory, written, confirm_term)

    def launches(spec: DriverSpec) -> FakeProcess:
        if spec.batch_numbers == BatchNumbers(job_id, 20_000, 30_000):
            raise LaunchFailed("no memory")
        return launch(spec)

    monkeypatch.setattr(JobDirectory, "write_record", write_record)
    monkeypatch.setattr(manager.launcher, "launch", launches)
    await (await manager.driver(1)).report_failure("crash")
    await eventually(lambda: len(manager.launcher.drivers) == 2)
    assert manager.launcher.specs[-1].batch_numbers == BatchNumbers(job_id, 30_000, 40_000)
    assert [name.partition(":")[0] for name in await exceptions(manager, job_id)] == [
        "LaunchFailed",
        "AttemptRecordUnwritable",
        "ValueError",
    ]


async def test_a_counter_that_is_behind_the_snapshot_is_not_believed(manager: RunningJobManager) -> None:
    """The state directory may come from a backup, or the savepoint from another cluster."""
    first = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(first)
    await failed(manager, 2)
    await manager.until(first, "RUNNING")
    location = (await manager.savepoint(first))["location"]
    counter(manager, first).write_text('{"end": 10000}')
    await manager.submit_running(FAST_RESTART, savepointPath=location)
    assert manager.launcher.specs[-1].batch_numbers == BatchNumbers(first, 20_000 + GAP, 30_000 + GAP)
    counter(manager, first).unlink()
    await manager.submit_running(FAST_RESTART, savepointPath=location)
    assert manager.launcher.specs[-1].batch_numbers == BatchNumbers(first, 20_000 + GAP, 30_000 + GAP)


async def test_a_snapshot_without_numbers_belongs_to_the_family_of_its_job(manager: RunningJobManager) -> None:
    first = await manager.submit_running(FAST_RESTART)
    savepoint = Path((await manager.savepoint(first))["location"].removeprefix("file:"))
    without = replace(read_metadata(str(savepoint)), batch_numbers=None)
    (savepoint / "_metadata").write_bytes(encode_metadata(without))
    counter(manager, first).unlink()
    job_id = await manager.submit_running(FAST_RESTART, savepointPath=str(savepoint))
    numbers = BatchNumbers(first, SNAPSHOT_BATCH + 1 + GAP, SNAPSHOT_BATCH + 1 + GAP + 10_000)
    assert manager.launcher.specs[-1].batch_numbers == numbers
    newest = await manager.checkpoint(job_id)
    metadata = read_metadata(str(Path(manager.settings.checkpoint_directory, job_id, f"chk-{newest}")))
    assert metadata.batch_numbers == numbers, "its own snapshots stay in the family"


async def test_numbers_begin_after_the_last_reported_one(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    first = await manager.driver(1)
    first.batch_id = 500_000

    await eventually(lambda: reports(manager, job_id, 500_000))
    second = await failed(manager, 2)
    assert second.spec.batch_numbers == BatchNumbers(job_id, 500_001 + GAP, 510_001 + GAP)


async def test_a_restore_near_the_greatest_number_is_refused_and_keeps_the_state(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    counter(manager, job_id).write_text(json.dumps({"end": LIMIT - 9_999}))
    await (await manager.driver(1)).report_failure("crash")
    await manager.until(job_id, "FAILED")
    assert (await exceptions(manager, job_id))[0].startswith(
        f"BatchNumbersExhausted: The jobs that were started from snapshots of job {job_id} have used the batch numbers"
    )
    assert Path(manager.settings.checkpoint_directory, job_id, "chk-1", "_metadata").exists()


async def test_a_damaged_counter_is_named_and_nothing_is_started(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    counter(manager, job_id).write_text("{")
    await (await manager.driver(1)).report_failure("crash")
    await manager.until(job_id, "FAILED")
    assert (await exceptions(manager, job_id))[0].startswith(f"BatchCounterUnreadable: {counter(manager, job_id)}")
    assert len(manager.launcher.drivers) == 1


async def test_local_recovery_keeps_the_range(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    await fails(await manager.driver(1), batch=9, in_flight=True)
    second = await manager.driver(2)
    assert second.spec.local is not None
    assert second.spec.batch_numbers is None
    assert record(manager, job_id).batch_numbers == BatchNumbers(job_id, 0, 10_000)


async def test_local_state_that_used_its_range_up_is_renumbered(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    await fails(await manager.driver(1), batch=9_900, first=9_898)
    second = await manager.driver(2)
    assert second.spec.local is not None
    assert second.spec.batch_numbers == BatchNumbers(job_id, 10_000, 20_000)


async def test_local_state_that_an_attempt_died_with_before_it_renumbered_it_is_renumbered(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await fails(await manager.driver(1), batch=9_900, first=9_898)
    await (await manager.driver(2)).report_failure("it has not taken over")
    third = await manager.driver(3)
    assert third.spec.local is not None
    assert third.spec.local.work_directory == (await manager.driver(1)).spec.work_directory
    assert third.spec.batch_numbers == BatchNumbers(job_id, 20_000, 30_000)


@pytest.mark.zookeeper
async def test_a_range_that_a_job_manager_reserved_before_it_died_is_not_reused(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(FAST_RESTART)
        await first.checkpoint(job_id)
    cluster.launcher.drivers[0].kill(-9)
    counters = BatchNumberCounters(counter(first, job_id).parent)
    assert counters.reserve(job_id, 10_000, SNAPSHOT_BATCH, lambda: None).first == 10_000

    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "RUNNING")
        assert cluster.launcher.specs[-1].batch_numbers == BatchNumbers(job_id, 20_000, 30_000)


async def test_a_range_is_stored_before_its_driver_gets_it(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    driver = await manager.driver(1)
    longer = BatchNumbers(job_id, 0, 20_000)
    durable: list[tuple[object, BatchNumbers | None]] = []
    receive = driver._receive

    async def sees(message: JobManagerMessage) -> None:
        if isinstance(message, BatchNumbersExtended):
            durable.append((counted(manager, job_id), record(manager, job_id).batch_numbers))
        await receive(message)

    driver._receive = sees  # type: ignore[method-assign]
    driver.batch_id = 5_000
    await eventually(lambda: len(driver.numbers_ends) == 2)
    assert driver.numbers_ends == [10_000, 20_000]
    assert durable == [(20_000, longer)]
    checkpoint = await manager.checkpoint(job_id)
    metadata = read_metadata(str(Path(manager.settings.checkpoint_directory, job_id, f"chk-{checkpoint}")))
    assert metadata.batch_numbers == longer
    assert driver.connection is not None
    await driver.connection.close()
    await eventually(lambda: len(driver.numbers_ends) == 3)
    assert driver.numbers_ends[-1] == 20_000, "the message may have been lost with the connection"
    assert (await failed(manager, 2)).spec.batch_numbers == BatchNumbers(job_id, 20_000, 30_000)


async def test_a_range_is_not_extended_into_numbers_of_another_job(
    manager: RunningJobManager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "checkpointing.jobs.driver_conversation")
    first = await manager.submit_running(FAST_RESTART)
    location = (await manager.savepoint(first))["location"]
    await manager.submit_running(FAST_RESTART, savepointPath=location)
    manager.launcher.drivers[0].batch_id = 5_000
    await eventually(lambda: "another attempt has the next batch numbers" in caplog.text)
    assert record(manager, first).batch_numbers == BatchNumbers(first, 0, 10_000)
    assert counted(manager, first) == 20_000
    assert manager.launcher.drivers[0].numbers_ends == [10_000]


async def test_a_driver_that_ended_because_its_numbers_are_used_up_is_started_without_any_restart_strategy(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(NEVER_RESTART)
    location = (await manager.savepoint(job_id))["location"]
    await manager.submit_running(FAST_RESTART, savepointPath=location)
    first = manager.launcher.drivers[0]
    first.batch_id = 9_900
    await eventually(lambda: reports(manager, job_id, 9_900))
    await fails(first, "used up", name="BatchNumbersUsedUp", batch=9_900, first=9_898)
    second = await manager.driver(2)
    assert second.spec.local is not None
    assert second.spec.batch_numbers == BatchNumbers(job_id, 20_000, 30_000)
    await manager.until(job_id, "RUNNING")
    await second.report_failure("the numbers are not used up", name="BatchNumbersUsedUp")
    await manager.until(job_id, "FAILED")
