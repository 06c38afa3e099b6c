# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""Which restores and starts a job manager does without a person if sinks would get duplicate rows (decision 132)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.jobs.restore import AFTER_RESTORE, refuses_to_write_again
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.messages import AfterRestore
from checkpointing.rest.client import RequestRefused
from checkpointing.storage import read_metadata
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager
from tests.checkpointing.jobs.test_job_master import FAST_RESTART
from tests.checkpointing.jobs.test_local_recovery import came_from_another_boot, exceptions, leave

NO_LOCAL = {"execution.state-recovery.from-local": "false"}
REFUSE = FAST_RESTART | NO_LOCAL | {AFTER_RESTORE: "refuse"}
ALLOW_EMPTY = {"waymark.allow-empty-start": "true"}


def record(manager: RunningJobManager, job_id: str) -> AttemptRecord:
    found = JobDirectory(manager.settings.state_directory / "jobs", job_id).read_record()
    assert found is not None
    return found


@pytest.fixture
def writes_again(manager: RunningJobManager) -> RunningJobManager:
    """Return a job manager whose drivers report a sink that writes rows again after a restore."""
    manager.launcher.after_restore = AfterRestore.WRITTEN_AGAIN
    return manager


def may_write_again(manager: RunningJobManager) -> list[bool]:
    """Return for each driver that restores a snapshot whether it may write rows again, in the order of their start."""
    return [spec.restore.may_write_again for spec in manager.launcher.specs if spec.restore is not None]


async def attempt_after(manager: RunningJobManager, drivers: int) -> None:
    """Let the newest driver fail, and wait until the job manager has launched the next one and it runs."""
    await manager.launcher.drivers[-1].report_failure("crash")
    await eventually(lambda: len(manager.launcher.drivers) > drivers)
    await manager.until(manager.launcher.drivers[-1].spec.job_id, "RUNNING")


# --- requests of people ----------------------------------------------------------------------------------------------


async def test_a_restart_by_the_restart_strategy_is_automatic(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(REFUSE)
    await manager.checkpoint(job_id)
    await attempt_after(manager, 1)
    assert may_write_again(manager) == [False]


async def test_by_default_an_automatic_restart_may_write_again(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART | NO_LOCAL)
    await manager.checkpoint(job_id)
    await attempt_after(manager, 1)
    assert may_write_again(manager) == [True]


async def test_a_person_accepts_one_restore_and_no_later_one(writes_again: RunningJobManager) -> None:
    manager = writes_again
    location = (await manager.savepoint(await manager.submit_running()))["location"]
    await manager.submit_running(REFUSE, savepointPath=location)
    await attempt_after(manager, 2)
    assert may_write_again(manager) == [True, False]


async def test_the_acceptance_is_valid_until_queries_have_started(writes_again: RunningJobManager) -> None:
    """A driver that ends while it starts Spark has written no rows."""
    manager = writes_again
    location = (await manager.savepoint(await manager.submit_running()))["location"]
    manager.launcher.becomes_running = False
    await manager.submit(REFUSE, savepointPath=location)
    await eventually(lambda: len(manager.launcher.drivers) == 2 and manager.launcher.drivers[1].registrations)
    manager.launcher.becomes_running = True
    await attempt_after(manager, 2)
    assert may_write_again(manager) == [True, True]


async def test_an_automatic_launch_is_marked_as_not_requested_by_a_person(manager: RunningJobManager) -> None:
    location = (await manager.savepoint(await manager.submit_running()))["location"]
    await manager.submit_running(REFUSE, savepointPath=location, automaticRestore=True)
    assert may_write_again(manager) == [False]
    with pytest.raises(RequestRefused, match="automaticRestore"):
        await manager.submit(REFUSE, savepointPath=location, automaticRestore="perhaps")


@pytest.mark.zookeeper
async def test_the_next_leader_knows_whether_a_person_requested_the_launch(cluster: Cluster) -> None:
    cluster.launcher.after_restore = AfterRestore.WRITTEN_AGAIN
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        location = (await first.savepoint(await first.submit_running()))["location"]
        job_id = await first.submit_running(REFUSE, savepointPath=location)
        await eventually(lambda: record(first, job_id).sinks)
    for driver in cluster.launcher.drivers:
        driver.kill(-9)
    async with cluster.job_manager(WAYMARK_RECONCILE_WINDOW="0.5") as second:
        await leads(second)
        await eventually(lambda: [spec.attempt for spec in cluster.launcher.specs if spec.job_id == job_id] == [1, 2])
        restores = [spec.restore for spec in cluster.launcher.specs if spec.job_id == job_id]
        assert [restore.may_write_again for restore in restores if restore is not None] == [True, False]


# --- after a refusal -------------------------------------------------------------------------------------------------


async def test_a_job_whose_restore_is_refused_keeps_its_checkpoints(manager: RunningJobManager) -> None:
    """With Flink's default retention, checkpoints would be removed when a job fails."""
    job_id = await manager.submit_running(REFUSE)
    await manager.checkpoint(job_id)
    manager.launcher.becomes_running = False
    await manager.launcher.drivers[0].report_failure("crash")
    second = await manager.driver(2)
    await second.report_failure("words", name="RowsWouldBeWrittenAgain", recoverable=False, keeps_state=True)
    await manager.until(job_id, "FAILED")
    assert Path(manager.settings.checkpoint_directory, job_id, "chk-1", "_metadata").exists()
    assert len(manager.launcher.drivers) == 2


# --- a job that died before its first checkpoint ---------------------------------------------------------------------


async def test_a_job_that_may_have_written_is_not_started_empty(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path) as manager:
        manager.launcher.after_restore = AfterRestore.WRITTEN_AGAIN
        job_id = await manager.submit_running(FAST_RESTART)
        work = Path(manager.launcher.specs[0].work_directory)
        location = leave(work, 0)
        came_from_another_boot(work)
        await manager.launcher.drivers[0].report_failure("crash")
        await manager.until(job_id, "FAILED")
        assert (await exceptions(manager, job_id))[0].startswith("NotStartedEmpty: The job has no checkpoint")
        assert len(manager.launcher.drivers) == 1
    assert (location / "commits" / "0").exists(), "the clean-up has removed the only state"


async def test_missing_files_are_not_proof(writes_again: RunningJobManager) -> None:
    job_id = await writes_again.submit_running(FAST_RESTART)
    await writes_again.launcher.drivers[0].report_failure("crash")
    await writes_again.until(job_id, "FAILED")


async def test_a_job_that_began_no_batch_is_started_empty(writes_again: RunningJobManager) -> None:
    manager = writes_again
    job_id = await manager.submit_running(FAST_RESTART)
    leave(Path(manager.launcher.specs[0].work_directory), -1)
    await attempt_after(manager, 1)
    second = manager.launcher.specs[1]
    assert (second.restore, second.local) == (None, None)
    await eventually(lambda: record(manager, job_id).sinks)


async def test_a_start_without_state_discards_earlier_runs(writes_again: RunningJobManager) -> None:
    """Attempt 2 starts empty and ends before its queries start, so attempt 3 may start empty, too."""
    manager = writes_again
    await manager.submit_running(FAST_RESTART)
    leave(Path(manager.launcher.specs[0].work_directory), -1)
    manager.launcher.becomes_running = False
    await manager.launcher.drivers[0].report_failure("crash")
    await manager.driver(2)
    manager.launcher.becomes_running = True
    await attempt_after(manager, 2)


async def test_a_job_that_may_start_empty_does(writes_again: RunningJobManager) -> None:
    await writes_again.submit_running(FAST_RESTART | ALLOW_EMPTY)
    await attempt_after(writes_again, 1)


@pytest.mark.parametrize("after_restore", [AfterRestore.GOES_BACK, AfterRestore.REPLACED, None])
async def test_other_sinks_get_no_row_twice(after_restore: AfterRestore | None, manager: RunningJobManager) -> None:
    manager.launcher.after_restore = after_restore
    await manager.submit_running(FAST_RESTART)
    await attempt_after(manager, 1)


@pytest.mark.zookeeper
async def test_a_lost_machine_does_not_lead_to_an_empty_start(cluster: Cluster) -> None:
    cluster.launcher.after_restore = AfterRestore.WRITTEN_AGAIN
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(FAST_RESTART)
        await eventually(lambda: record(first, job_id).sinks)
        directory = JobDirectory(first.settings.state_directory / "jobs", job_id)
    cluster.launcher.drivers[0].kill(-9)
    left = directory.read_record()
    assert left is not None
    directory.write_record(replace(left, host="elsewhere.example"))
    leave(Path(left.work_directory), 0)
    came_from_another_boot(Path(left.work_directory))
    async with cluster.job_manager(WAYMARK_RECONCILE_WINDOW="0.5") as second:
        await leads(second)
        await second.until(job_id, "FAILED")
        assert len(cluster.launcher.drivers) == 1


# --- texts for people ------------------------------------------------------------------------------------------------


async def test_a_job_and_its_snapshots_list_the_queries_that_write_again(writes_again: RunningJobManager) -> None:
    manager = writes_again
    job_id = await manager.submit_running()
    location = (await manager.savepoint(job_id))["location"]
    sink = {"name": "wordcount", "sink": "Sink: console", "after-restore": "written-again"}
    (query,) = (await manager.get(f"/jobs/{job_id}"))["queries"]
    assert {name: query[name] for name in sink} == sink
    verdict = await manager.post("/savepoints/validate", {"savepointPath": location})
    assert verdict["queries"] == [sink]
    operators = read_metadata(location.removeprefix("file:")).operators
    assert [operator.after_restore for operator in operators] == [None, None, AfterRestore.WRITTEN_AGAIN]


async def test_a_restarted_job_still_lists_queries_that_write_again(writes_again: RunningJobManager) -> None:
    """The newest attempt of the job has no operators yet."""
    manager = writes_again
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    manager.launcher.becomes_running = False
    await manager.launcher.drivers[0].report_failure("crash")
    await manager.driver(2)
    (query,) = (await manager.get(f"/jobs/{job_id}"))["queries"]
    assert query["after-restore"] == "written-again"


# --- the setting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "refuses"), [(None, False), ("write-again", False), ("Refuse ", True)])
def test_the_setting_decides_whether_rows_may_be_written_again(value: str | None, refuses: bool) -> None:
    assert refuses_to_write_again({} if value is None else {AFTER_RESTORE: value}) is refuses


def test_another_value_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"execution\.sinks\.after-restore: 'never'.*write-again or refuse"):
        refuses_to_write_again({AFTER_RESTORE: "never"})


async def test_a_submission_with_another_value_is_refused(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match=AFTER_RESTORE):
        await manager.submit({AFTER_RESTORE: "never"})
