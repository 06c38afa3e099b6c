"""Pods with fake drivers, and the job managers that create these pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from checkpointing.jobs.launching.chosen import ChosenLauncher
from checkpointing.jobs.launching.deployment import LauncherKind, Site
from checkpointing.jobs.launching.kubernetes.launcher import KubernetesLauncher, PodDefaults
from checkpointing.model.driver_spec import DriverSpec
from tests.checkpointing.jobs.fake_driver import FakeDriver, FakeLauncher
from tests.checkpointing.jobs.played_kubernetes import NAMESPACE, Json, PlayedKubernetes
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager

CONFIGURATION = {
    "spark.kubernetes.container.image": "registry/streams:1",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "10 ms",
    "restart-strategy.fixed-delay.attempts": "5",
}
_SITE = Site(storage_is_shared=False, address="http://jobs.internal:8081")


class PlayedDriver:
    """A container whose process is a FakeDriver on the loop of `fakes`."""

    def __init__(self, files: dict[str, bytes], fakes: FakeLauncher, loop: asyncio.AbstractEventLoop) -> None:
        [text] = [content for path, content in files.items() if path.endswith("driver.json")]
        self.spec = DriverSpec.from_json(json.loads(text))
        self.driver: FakeDriver | None = None
        self._loop = loop
        self._killed: int | None = None
        asyncio.run_coroutine_threadsafe(self._start(fakes), loop)

    async def _start(self, fakes: FakeLauncher) -> None:
        if self._killed is None:
            self.driver = await fakes._launched(self.spec)

    @property
    def exit_code(self) -> int | None:
        if self.driver is None:
            return self._killed
        exited = self.driver.process.exited
        return exited.result() if exited.done() else None

    def terminate(self) -> None:
        self._end(143)

    def kill(self) -> None:
        self._end(137)

    def output(self) -> bytes:
        return b"the last line of the log\n"

    def _end(self, code: int) -> None:
        self._killed = code
        if self.driver is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.driver.kill, code)


class PodCluster:
    """A simulated Kubernetes with job managers. `drivers` has the failure switches of all drivers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        loop = asyncio.get_running_loop()
        self.drivers = FakeLauncher(loop)

        def run(pod: Json, files: dict[str, bytes], variables: dict[str, str]) -> PlayedDriver:
            return PlayedDriver(files, self.drivers, loop)

        self.kubernetes = PlayedKubernetes(directory, run)

    def launcher(self, start_limit_s: float = 60.0) -> ChosenLauncher:
        snapshots = ("s3://bucket/checkpoints", "s3://bucket/savepoints")
        defaults = PodDefaults(NAMESPACE, "jobs", start_limit_s, *snapshots)
        pods = KubernetesLauncher(self.kubernetes.api(), defaults, _SITE, {}, list_interval_s=0.02, patience_s=1.0)
        return ChosenLauncher(self.drivers, pods, LauncherKind.KUBERNETES)

    @asynccontextmanager
    async def job_manager(self, *, start_limit_s: float = 60.0, **environ: str) -> AsyncIterator[RunningJobManager]:
        launcher = self.launcher(start_limit_s)
        async with running_job_manager(self.directory, launcher, **environ) as manager:  # type: ignore[arg-type]
            manager.launcher = self.drivers
            yield manager

    @property
    def created(self) -> list[str]:
        return [pod["metadata"]["labels"]["waymark/attempt"] for pod in self.kubernetes.created]


@asynccontextmanager
async def pod_cluster(directory: Path) -> AsyncIterator[PodCluster]:
    cluster = PodCluster(directory)
    with cluster.kubernetes.serving():
        yield cluster
    await cluster.drivers.close()
