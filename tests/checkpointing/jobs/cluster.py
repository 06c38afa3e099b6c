"""Job managers over a real ZooKeeper, one after the other or side by side."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from checkpointing.ha.services import HighAvailabilityMode, HighAvailabilityServices, HighAvailabilitySettings
from checkpointing.ha.services import make_services as make_high_availability
from checkpointing.rest.client import RequestRefused
from checkpointing.storage import read_metadata
from tests.checkpointing.jobs.fake_driver import FakeLauncher
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager


class Cluster:
    """Job managers that share a state directory, a ZooKeeper root, and the drivers of one machine."""

    def __init__(self, directory: Path, hosts: str) -> None:
        self.directory = directory
        self.hosts = hosts
        self.root = f"/test-{uuid.uuid4().hex}"
        self.launcher = FakeLauncher(asyncio.get_running_loop())

    @property
    def checkpoints(self) -> Path:
        """The directory in which the job managers keep the checkpoints of their jobs."""
        return self.directory / "state" / "checkpoints"

    def job_manager(self, **environ: str):  # type: ignore[no-untyped-def]
        names = {"ZOOKEEPER_HOSTS": self.hosts, "WAYMARK_ZOOKEEPER_ROOT": self.root}
        return running_job_manager(self.directory, self.launcher, **{**names, **environ})

    def stores(self) -> HighAvailabilityServices:
        """Return the job managers' high availability services, without taking part in the election. Close them."""
        return make_high_availability(
            HighAvailabilitySettings(
                storage_directory=self.directory / "state" / "ha",
                mode=HighAvailabilityMode.ZOOKEEPER,
                hosts=self.hosts,
                root=self.root,
            ),
            read_metadata,
        )

    def drivers_find(self, manager: RunningJobManager) -> None:
        """Give the drivers the address of the new leader, as if they had looked it up."""
        for driver in self.launcher.drivers:
            driver.address = manager.address


async def leads(manager: RunningJobManager) -> None:
    async def answers() -> bool:
        try:
            await manager.get("/overview")
        except RequestRefused as refusal:
            return refusal.status != 503
        return True

    await eventually(answers)
