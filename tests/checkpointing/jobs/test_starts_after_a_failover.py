"""The jobs of a dead leader start one after the other on the next leader's machine, with fake drivers."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from checkpointing import main as jobmanager
from checkpointing.ha.completed_checkpoints import LoadCheckpoint
from checkpointing.ha.job_graphs import StandaloneJobGraphStore
from checkpointing.ha.services import HighAvailabilitySettings, StandaloneServices
from checkpointing.model.messages import DriverState
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import FakeDriver, FakeLauncher
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager
from tests.checkpointing.jobs.test_fault_job_manager_process import in_a_process

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


async def run_one_by_one(
    launched: Callable[[], list[FakeDriver]],
    until: int,
    jobs: int,
    limit: int,
    before: Counter[FakeDriver] | None = None,
) -> None:
    """Let the oldest starting driver run, whenever the limit of starting drivers is reached, until `until` drivers run.

    Starts end only here, so a start beyond the limit would be seen. `before` has how often each driver had registered
    with an earlier leader.
    """
    earlier = before or Counter()
    running = len(launched()) - len(starting(launched()))
    while running < until:
        await eventually(lambda n=running: len(starting(launched())) == min(limit, jobs - n))  # type: ignore[misc]
        driver = starting(launched())[0]
        await eventually(lambda d=driver: d.registrations > earlier[d])  # type: ignore[misc]
        await driver.runs()
        running += 1


def registrations(drivers: list[FakeDriver]) -> Counter[FakeDriver]:
    return Counter({driver: driver.registrations for driver in drivers})


async def all_run(manager: RunningJobManager, number: int) -> None:
    async def run() -> bool:
        states = [job["state"] for job in (await manager.get("/jobs/overview"))["jobs"]]
        return states == ["RUNNING"] * number

    await eventually(run)


class NextLeaders:
    """Job managers that run one after the other and share their stores and the drivers of one machine."""

    def __init__(self, directory: Path, launcher: FakeLauncher) -> None:
        self._directory = directory
        self.launcher = launcher

    def job_manager(self, **environ: str):  # type: ignore[no-untyped-def]
        leave = {"WAYMARK_DRIVERS_ON_SHUTDOWN": "leave"}
        return running_job_manager(self._directory, self.launcher, **{**leave, **environ})

    def drivers_find(self, manager: RunningJobManager) -> None:
        for driver in self.launcher.drivers:
            driver.address = manager.address


@pytest_asyncio.fixture
async def leaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NextLeaders]:
    graphs = StandaloneJobGraphStore()

    def services(settings: HighAvailabilitySettings, load: LoadCheckpoint) -> StandaloneServices:
        made = StandaloneServices(settings.storage_directory, load)
        made.job_graphs = graphs
        return made

    monkeypatch.setattr(jobmanager, "make_services", services)
    launcher = FakeLauncher(asyncio.get_running_loop())
    yield NextLeaders(tmp_path, launcher)
    await launcher.close()


@pytest.mark.nightly
async def test_sixty_jobs_start_in_the_order_of_priority_after_the_leaders_death(leaders: NextLeaders) -> None:
    drivers = leaders.launcher.drivers
    async with leaders.job_manager() as first:
        await submitted(first, JOBS)
        await all_run(first, JOBS)
    for driver in drivers:
        driver.kill(-9)
    leaders.launcher.becomes_running = False

    async with leaders.job_manager(WAYMARK_DRIVER_STARTS=str(LIMIT)) as second:
        await run_one_by_one(lambda: drivers[JOBS:], JOBS, JOBS, LIMIT)
        await all_run(second, JOBS)

        launched = drivers[JOBS:]
        priorities = [int(driver.spec.configuration["waymark.priority"]) for driver in launched]
        assert priorities == sorted(priorities, reverse=True)
        assert {driver.spec.attempt for driver in launched} == {2}
        assert len({driver.spec.job_id for driver in launched}) == JOBS


async def test_a_leader_that_ends_during_the_starts_loses_and_repeats_none(leaders: NextLeaders) -> None:
    """Three drivers run, four are starting, and five jobs wait. The next leader adopts seven and starts five."""
    drivers = leaders.launcher.drivers
    leaders.launcher.becomes_running = False
    async with leaders.job_manager(WAYMARK_DRIVER_STARTS=str(LIMIT)) as first:
        await submitted(first, 12)
        await run_one_by_one(lambda: drivers, 3, 12, LIMIT)
        await eventually(lambda: len(drivers) == 3 + LIMIT)
        await eventually(lambda: all(driver.registrations for driver in drivers))
    before = registrations(drivers)

    async with leaders.job_manager(WAYMARK_DRIVER_STARTS=str(LIMIT)) as second:
        leaders.drivers_find(second)
        await run_one_by_one(lambda: drivers, 12, 12, LIMIT, before)
        await all_run(second, 12)

        assert {driver.spec.attempt for driver in drivers} == {1}
        assert len({driver.spec.job_id for driver in drivers}) == len(drivers) == 12


async def test_drivers_that_live_are_adopted_beyond_the_limits(leaders: NextLeaders) -> None:
    async with leaders.job_manager() as first:
        await submitted(first, 5)
        await all_run(first, 5)

    async with leaders.job_manager(WAYMARK_DRIVER_LIMIT="3", WAYMARK_DRIVER_STARTS="1") as second:
        leaders.drivers_find(second)
        await all_run(second, 5)
        new = await second.submit()

        async def waits() -> bool:
            wait = (await second.get(f"/jobs/{new}"))["launch-wait"]
            return wait is not None and (wait["for"], wait["free"]) == ("drivers", 0)

        await eventually(waits)
        assert len(leaders.launcher.drivers) == 5


@pytest.mark.nightly
@pytest.mark.zookeeper
async def test_a_leader_that_is_killed_amid_the_starts_loses_and_doubles_none(cluster: Cluster, tmp_path: Path) -> None:
    jobs, limit = 12, 2
    cluster.launcher.becomes_running = False
    async with in_a_process(cluster, tmp_path / "desk", WAYMARK_DRIVER_STARTS=str(limit)) as first:
        await leads(first)
        await submitted(first, jobs)
        await run_one_by_one(lambda: cluster.launcher.drivers, 3, jobs, limit)
        await eventually(lambda: len(cluster.launcher.drivers) == 3 + limit)
        await eventually(lambda: all(driver.registrations for driver in cluster.launcher.drivers))
        first.signal(signal.SIGKILL)
    before = registrations(cluster.launcher.drivers)

    async with in_a_process(cluster, tmp_path / "desk", WAYMARK_DRIVER_STARTS=str(limit)) as second:
        cluster.drivers_find(second)
        await run_one_by_one(lambda: cluster.launcher.drivers, jobs, jobs, limit, before)
        await all_run(second, jobs)

        launched = cluster.launcher.drivers
        assert {driver.spec.attempt for driver in launched} == {1}
        assert len({driver.spec.job_id for driver in launched}) == len(launched) == jobs
