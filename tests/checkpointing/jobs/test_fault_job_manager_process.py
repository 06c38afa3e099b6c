"""A job manager process that is killed or stopped in the middle of its work. Over a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkpointing.main import EXIT_FATAL
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.rest.client import JobManagerClient, RequestRefused
from checkpointing.storage import read_metadata
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import FakeDriver
from tests.checkpointing.jobs.job_manager_process import ALIVE, LAUNCH, LAUNCHED
from tests.checkpointing.jobs.running_job_manager import LIMIT_S, RunningJobManager, eventually

pytestmark = pytest.mark.zookeeper

SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "10"}
SHORT_SESSION = {"WAYMARK_ZOOKEEPER_SESSION_TIMEOUT": "5"}  # the next leader waits until it has expired
HEARTBEAT_TIMEOUT_S = 6
REPOSITORY = Path(__file__).parents[3]
RETAIN = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms",
          "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
          "execution.checkpointing.num-retained": "3"}  # fmt: skip


class DistantJobManager(RunningJobManager):
    """A job manager in a separate process. `ended_drivers` has the PIDs of the drivers that it ended."""

    def __init__(self, cluster: Cluster, desk: Path, *options: str, **environ: str) -> None:
        names = {"ZOOKEEPER_HOSTS": cluster.hosts, "WAYMARK_ZOOKEEPER_ROOT": cluster.root}
        super().__init__(cluster.directory, cluster.launcher, {**names, **environ})
        desk.mkdir(exist_ok=True)
        self._desk = desk
        self._options = options
        self._environ = {**names, **environ}
        self.ended_drivers: list[int] = []
        self._process: asyncio.subprocess.Process | None = None
        self._clerk: asyncio.Task[None] | None = None

    async def start(self) -> None:
        shared = {
            "WAYMARK_JOBMANAGER_PORT": "0",
            "WAYMARK_JOBMANAGER_STATE": str(self.directory / "state"),
            "WAYMARK_HEARTBEAT_INTERVAL": "0.1",
            "WAYMARK_HEARTBEAT_TIMEOUT": str(HEARTBEAT_TIMEOUT_S),
        }
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.checkpointing.jobs.job_manager_process"),
            *(str(self._desk), *self._options),
            cwd=REPOSITORY,
            env={**os.environ, **shared, **self._environ},
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        output = (await self._process.stdout.readline()).decode()
        assert output.startswith("Job manager serves"), output
        self.address = output.split()[3]
        self.client = JobManagerClient(self.address, self.settings.token)
        self._clerk = asyncio.create_task(self._serve_launches())

    async def exit_code(self) -> int:
        """Wait until the process has ended by itself, and return its exit code."""
        assert self._process is not None
        return await asyncio.wait_for(self._process.wait(), LIMIT_S)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def shut_down(self) -> None:
        assert self._process is not None
        assert self._clerk is not None
        self._clerk.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _serve_launches(self) -> None:
        alive: dict[int, FakeDriver] = {}
        while True:
            for file in await asyncio.to_thread(lambda: list(self._desk.glob(f"*{LAUNCH}"))):
                driver = await self._launched(DriverSpec.from_json(json.loads(file.read_text())))
                alive[driver.pid] = driver
                (self._desk / f"{driver.pid}{ALIVE}").touch()
                file.with_suffix(".part").write_text(str(driver.pid))
                file.with_suffix(".part").rename(file.with_suffix(LAUNCHED))
                file.unlink()
            for pid, driver in alive.items():
                if not (self._desk / f"{pid}{ALIVE}").exists() and pid not in self.ended_drivers:
                    self.ended_drivers.append(pid)
                    driver.kill(-15)
            await asyncio.sleep(0.02)

    async def _launched(self, spec: DriverSpec) -> FakeDriver:
        return await self.launcher._launched(spec)


@contextlib.asynccontextmanager
async def in_a_process(cluster: Cluster, desk: Path, *options: str, **environ: str) -> AsyncIterator[DistantJobManager]:
    manager = DistantJobManager(cluster, desk, *options, **SHORT_SESSION, **environ)
    await manager.start()
    try:
        yield manager
    finally:
        await manager.shut_down()


async def completed_ids(manager: RunningJobManager, job_id: str) -> list[int]:
    """Return the IDs of the completed checkpoints, from which the next job manager would restart the job."""
    history = (await manager.get(f"/jobs/{job_id}/checkpoints"))["history"]
    return [entry["id"] for entry in history if entry["status"] == "COMPLETED"]


async def test_a_leader_killed_during_a_checkpoint_loses_neither_the_job_nor_a_checkpoint(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with in_a_process(cluster, tmp_path / "desk") as first:
        await leads(first)
        job_id = await first.submit_running(RETAIN)
        assert [await first.checkpoint(job_id) for _ in range(2)] == [1, 2]
        driver = await first.driver(1)
        driver.acknowledges = False
        await first.post(f"/jobs/{job_id}/checkpoints")
        await eventually(lambda: [trigger.checkpoint_id for trigger in driver.triggers] == [1, 2, 3])
        await first.post(f"/jobs/{job_id}/savepoints", {})
        await eventually(lambda: len(driver.triggers) == 4)
        savepoint = Path(driver.triggers[-1].directory)
        assert savepoint.is_dir()  # noqa: ASYNC240
        directory = Path(first.settings.checkpoint_directory, job_id)
        first.signal(signal.SIGKILL)
        [pending] = [trigger for trigger in driver.triggers if trigger.checkpoint_id == 3]

        async with cluster.job_manager(**SESSION) as second:
            cluster.drivers_find(second)
            await leads(second)
            await second.until(job_id, "RUNNING")
            assert (await second.get(f"/jobs/{job_id}"))["status-history"][-1]["cause"].endswith("was adopted")
            driver.acknowledges = True
            driver.shared_files = ("of the dead leader's checkpoint alone",)
            await driver._checkpoint(pending)  # acknowledges the dead leader's checkpoint late
            driver.shared_files = ("needed",)
            assert savepoint.is_dir(), "while the driver may write to it"  # noqa: ASYNC240

            assert await second.checkpoint(job_id) == 5, "ids ascend"
            assert 3 not in await completed_ids(second, job_id)
            await eventually(lambda: not savepoint.exists())
            await eventually(lambda: len(list((directory / "shared").iterdir())) == 1)
            assert sorted(path.name for path in directory.glob("chk-*")) == ["chk-1", "chk-2", "chk-5"]  # noqa: ASYNC240
            driver.kill(-9)
            await eventually(lambda: len(cluster.launcher.drivers) == 2)
            restore = cluster.launcher.specs[-1].restore
            assert restore is not None
            assert restore.checkpoint_id == 5
            await second.until(job_id, "RUNNING")
            for kept in (1, 2, 5):
                assert read_metadata(str(directory / f"chk-{kept}")).checkpoint_id == kept


async def test_a_stopped_leader_that_resumes_after_its_term_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    async with in_a_process(cluster, tmp_path / "desk") as first:
        await leads(first)
        job_id = await first.submit_running(RETAIN)
        assert await first.checkpoint(job_id) == 1
        driver = await first.driver(1)
        driver.acknowledges = False
        await first.post(f"/jobs/{job_id}/checkpoints")
        await eventually(lambda: len(driver.triggers) == 2)
        first.signal(signal.SIGSTOP)
        stopped_s = time.monotonic()
        try:
            async with cluster.job_manager(**SESSION) as second:
                await leads(second)
                driver.acknowledges = True
                assert driver.connection is not None
                driver.connection.transport.abort()  # the stopped leader notices this later
                cluster.drivers_find(second)
                await second.until(job_id, "RUNNING")
                assert await second.checkpoint(job_id) == 3
                # Longer than the heartbeat timeout, after which the stopped leader would regard the driver as lost.
                await eventually(lambda: time.monotonic() - stopped_s > 1.2 * HEARTBEAT_TIMEOUT_S)
                record = (second.settings.state_directory / "jobs" / job_id / "attempt.json").read_bytes()

                first.signal(signal.SIGCONT)

                for _ in range(3):
                    with pytest.raises(RequestRefused) as refusal:
                        await first.get("/jobs/overview")
                    assert refusal.value.status == 503
                assert [await second.checkpoint(job_id) for _ in range(3)] == [4, 5, 6]
                assert await second.status(job_id) == "RUNNING"
                assert first.ended_drivers == []
                assert len(cluster.launcher.drivers) == 1
                assert (second.settings.state_directory / "jobs" / job_id / "attempt.json").read_bytes() == record
                assert await completed_ids(second, job_id) == [6, 5, 4, 3]
        finally:
            first.signal(signal.SIGCONT)


@pytest.mark.parametrize("driver_dies_too", [False, True])
async def test_a_complete_checkpoint_missing_in_an_empty_store_is_removed_with_the_next_one(
    cluster: Cluster, tmp_path: Path, driver_dies_too: bool
) -> None:
    async with in_a_process(cluster, tmp_path / "desk", "freeze") as first:
        await leads(first)
        job_id = await first.submit_running(RETAIN)
        directory = Path(first.settings.checkpoint_directory, job_id)
        await first.post(f"/jobs/{job_id}/checkpoints")
        await eventually((directory / "chk-1" / "_metadata").exists)
        first.signal(signal.SIGKILL)
        if driver_dies_too:
            (await first.driver(1)).kill(-9)

        async with cluster.job_manager(**SESSION) as second:
            cluster.drivers_find(second)
            await leads(second)
            await second.until(job_id, "RUNNING")
            assert (directory / "chk-1" / "_metadata").exists(), "it may be all there is"

            assert await second.checkpoint(job_id) == 2
            await eventually(lambda: {path.name for path in directory.glob("chk-*")} == {"chk-2"})


async def test_a_leader_whose_election_fails_ends_its_process_and_the_standby_adopts_its_jobs(
    cluster: Cluster, tmp_path: Path
) -> None:
    desk = tmp_path / "desk"
    async with (
        in_a_process(cluster, desk, "mistake") as first,
        cluster.job_manager(**SESSION) as second,
    ):
        await leads(first)
        job_id = await first.submit_running(RETAIN)
        (desk / "mistake").touch()

        assert await first.exit_code() == EXIT_FATAL
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")
        assert len(cluster.launcher.drivers) == 1
        assert cluster.launcher.drivers[0].refusals == []
