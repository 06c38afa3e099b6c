"""The death of a job manager does not harm its jobs. Over a real ZooKeeper."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.jobs.attempts import JobDirectory
from checkpointing.rest.client import RequestRefused
from checkpointing.storage.files import LocalFiles
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

pytestmark = pytest.mark.zookeeper

RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms",
           "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}  # fmt: skip


async def test_a_running_driver_is_adopted_by_the_next_job_manager(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        assert await first.checkpoint(job_id) == 1
    assert not cluster.launcher.drivers[0].process.exited.done()

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")

        assert await second.checkpoint(job_id) == 2
        assert len(cluster.launcher.drivers) == 1
        job = await second.get(f"/jobs/{job_id}")
        assert [move["status"] for move in job["status-history"]] == ["INITIALIZING", "RECONCILING", "RUNNING"]
        assert job["attempts"][0]["attempt"] == 1


async def test_a_driver_of_another_machine_is_awaited_and_not_confused_with_a_local_process(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        directory = JobDirectory(first.settings.state_directory / "jobs", job_id)
    record = directory.read_record()
    assert record is not None
    directory.write_record(replace(record, host="elsewhere.example"))
    taken: list[int] = []
    monkeypatch.setattr(cluster.launcher, "adopt", lambda pid, *_: taken.append(pid))

    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "RECONCILING")
        cluster.drivers_find(second)
        await second.until(job_id, "RUNNING")
        assert (len(cluster.launcher.drivers), taken) == (1, [])


async def test_a_driver_that_died_during_the_failover_is_replaced_from_the_newest_checkpoint(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        await first.checkpoint(job_id)
    cluster.launcher.drivers[0].kill(-9)

    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "RUNNING")

        spec = cluster.launcher.specs[-1]
        assert spec.attempt == 2
        assert spec.restore is not None
        assert spec.restore.checkpoint_id == 1
        assert spec.high_availability is not None


async def test_a_job_that_ran_under_an_earlier_job_manager_is_restarted_after_a_program_error(cluster: Cluster) -> None:
    """The apparent mistake may be an argument with a file whose file system is unavailable."""
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
    cluster.launcher.drivers[0].kill(-9)
    cluster.launcher.becomes_running = False

    async with cluster.job_manager() as second:
        await leads(second)
        await (await second.driver(2)).report_failure("no such column", is_mistake=True)
        await (await second.driver(3)).runs()
        await second.until(job_id, "RUNNING")


def _leave_orphans(manager: RunningJobManager, job_id: str) -> Path:
    """Write the files that a driver and a job manager leave if they die in the middle of checkpoint 2."""
    directory = Path(manager.settings.checkpoint_directory, job_id)
    (directory / "chk-2").mkdir()
    (directory / "chk-2" / "half").write_text("x")
    (directory / "shared" / "orphan").write_text("x")
    return directory


async def test_recovery_removes_files_of_an_unfinished_checkpoint(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        await first.checkpoint(job_id)
        savepoint = Path((await first.savepoint(job_id))["location"].removeprefix("file:"))
        directory = _leave_orphans(first, job_id)
    cluster.launcher.drivers[0].kill(-9)

    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "RUNNING")

        assert sorted(path.name for path in directory.iterdir()) == ["chk-1", "shared", "taskowned"]
        assert list((directory / "shared").iterdir()) == []
        assert (savepoint / "_metadata").is_file()
        restore = cluster.launcher.specs[-1].restore
        assert restore is not None
        assert restore.checkpoint_id == 1


async def test_recovery_keeps_files_that_an_adopted_driver_may_write(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        await first.checkpoint(job_id)
        directory = _leave_orphans(first, job_id)

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")
        await (await second.driver(1)).report_failure("the adopted one fails later")
        await eventually(lambda: len(cluster.launcher.drivers) == 2)
        await second.until(job_id, "RUNNING")

        assert (directory / "chk-2" / "half").exists()
        assert (directory / "shared" / "orphan").exists()


async def test_a_checkpoint_that_is_being_removed_is_not_an_orphan(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        await first.checkpoint(job_id)
    remove, removed = LocalFiles.remove_tree, []

    def remove_slowly(files: LocalFiles, path: str) -> None:
        time.sleep(0.5)
        removed.append(Path(path).name)
        remove(files, path)

    monkeypatch.setattr(LocalFiles, "remove_tree", remove_slowly)
    with caplog.at_level(logging.INFO):
        async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as second:
            cluster.drivers_find(second)
            await leads(second)
            await second.until(job_id, "RUNNING")
            directory = _leave_orphans(second, job_id)
            (directory / "chk-2").rename(directory / "chk-0")
            assert await second.checkpoint(job_id) == 2
            await eventually(lambda: "removed orphaned checkpoints: 0;" in caplog.text)
            await eventually(lambda: list((directory / "shared").iterdir()) == [])
    assert removed == ["chk-1", "chk-0"]


async def test_a_driver_that_does_not_reconnect_in_time_is_ended_and_replaced(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)

    async with cluster.job_manager(WAYMARK_RECONCILE_WINDOW="0.5") as second:
        await leads(second)
        await second.until(job_id, "RUNNING")

        assert [driver.spec.attempt for driver in cluster.launcher.drivers] == [1, 2]
        assert cluster.launcher.drivers[0].process.exited.done()


async def test_a_graceful_stop_ends_the_drivers_and_keeps_the_jobs(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="stop") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        await first.checkpoint(job_id)
    assert cluster.launcher.drivers[0].process.exited.result() == 0

    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "RUNNING")

        spec = cluster.launcher.specs[-1]
        assert spec.attempt == 2
        assert spec.restore is not None
        assert spec.restore.checkpoint_id == 1


async def test_an_ended_job_is_not_recovered_and_its_id_remains_reserved(cluster: Cluster) -> None:
    async with cluster.job_manager() as first:
        await leads(first)
        job_id = await first.submit_running(RESTART)
        await first.cancel(job_id)
        await first.until(job_id, "CANCELED")

    async with cluster.job_manager() as second:
        await leads(second)

        assert await second.get("/jobs") == {"jobs": [{"id": job_id, "status": "CANCELED"}]}, "it is still shown"
        with pytest.raises(RequestRefused) as refusal:
            await second.submit(jobId=job_id)
        assert refusal.value.status == 409


async def test_a_standby_answers_503_until_it_leads_and_then_recovers_the_jobs(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as leader:
        await leads(leader)
        job_id = await leader.submit_running(RESTART)
        async with cluster.job_manager() as standby:
            with pytest.raises(RequestRefused) as refusal:
                await standby.get("/jobs/overview")
            assert refusal.value.status == 503
            assert "leader election" in str(refusal.value)

            cluster.drivers_find(standby)
            await leader.shut_down()
            await leads(standby)
            await standby.until(job_id, "RUNNING")

            assert len(cluster.launcher.drivers) == 1
