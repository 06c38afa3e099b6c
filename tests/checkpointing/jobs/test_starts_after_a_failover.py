"""The jobs of a dead leader start in turn on the next one's machine. Over a real ZooKeeper, with played drivers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointing.messages import DriverState
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import FakeDriver
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.checkpointing.jobs.test_fault_job_manager_process import in_a_process

pytestmark = pytest.mark.zookeeper

LIMIT = 4
JOBS = 60


async def submitted(manager: RunningJobManager, number: int) -> None:
    """Submit jobs with the priorities 0, 1, 2, 0, 1, 2, …"""
    jar_id = await manager.upload()
    for each in range(number):
        settings = {"waymark.priority": str(each % 3), "restart-strategy.type": "fixed-delay"}
        body = {"entryClass": "wordcount.py:wordcount", "flinkConfiguration": settings, "jobName": f"job {each}"}
        await manager.post(f"/jars/{jar_id}/run", body)


def starting(drivers: list[FakeDriver]) -> list[FakeDriver]:
    return [driver for driver in drivers if driver.state is DriverState.INITIALIZING]


async def run_one_by_one(launched: Callable[[], list[FakeDriver]], until: int, jobs: int, limit: int) -> None:
    """Let the oldest starting driver run, each time that as many start as may, until so many run.

    A start ends only here: one too many at any time would be one too many from then on.
    """
    running = len(launched()) - len(starting(launched()))
    while running < until:
        await eventually(lambda n=running: len(starting(launched())) == min(limit, jobs - n))  # type: ignore[misc]
        driver = starting(launched())[0]
        await eventually(lambda d=driver: d.session_id)  # type: ignore[misc]
        await driver.runs()
        running += 1


async def all_run(manager: RunningJobManager, number: int) -> None:
    async def run() -> bool:
        states = [job["state"] for job in (await manager.get("/jobs/overview"))["jobs"]]
        return states == ["RUNNING"] * number

    await eventually(run)


async def test_sixty_jobs_start_in_turn_by_priority_after_the_leaders_death(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        await submitted(first, JOBS)
        await all_run(first, JOBS)
    for driver in cluster.launcher.drivers:
        driver.kill(-9)
    cluster.launcher.becomes_running = False

    async with cluster.job_manager(WAYMARK_DRIVER_STARTS=str(LIMIT)) as second:
        await run_one_by_one(lambda: cluster.launcher.drivers[JOBS:], JOBS, JOBS, LIMIT)
        await all_run(second, JOBS)

        launched = cluster.launcher.drivers[JOBS:]
        priorities = [int(driver.spec.configuration["waymark.priority"]) for driver in launched]
        assert priorities == sorted(priorities, reverse=True)
        assert {driver.spec.attempt for driver in launched} == {2}
        assert len({driver.spec.job_id for driver in launched}) == JOBS


@pytest.mark.nightly
async def test_a_leader_that_is_killed_amid_the_starts_loses_and_doubles_none(cluster: Cluster, tmp_path: Path) -> None:
    jobs, limit = 12, 2
    cluster.launcher.becomes_running = False
    async with in_a_process(cluster, tmp_path / "desk", WAYMARK_DRIVER_STARTS=str(limit)) as first:
        await leads(first)
        await submitted(first, jobs)
        await run_one_by_one(lambda: cluster.launcher.drivers, 3, jobs, limit)
        await eventually(lambda: len(cluster.launcher.drivers) == 3 + limit)
        first.signal(signal.SIGKILL)

    async with in_a_process(cluster, tmp_path / "desk", WAYMARK_DRIVER_STARTS=str(limit)) as second:
        cluster.drivers_find(second)
        await run_one_by_one(lambda: cluster.launcher.drivers, jobs, jobs, limit)
        await all_run(second, jobs)

        launched = cluster.launcher.drivers
        assert {driver.spec.attempt for driver in launched} == {1}
        assert len({driver.spec.job_id for driver in launched}) == len(launched) == jobs
