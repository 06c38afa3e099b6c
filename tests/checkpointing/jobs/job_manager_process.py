"""A job manager in a separate process, for tests that kill or stop it. The test plays its drivers.

The first argument is a directory. With `freeze` as second argument, every add to a checkpoint store hangs after the
metadata is written. With `mistake`, the election raises a programming error once the directory has a file `mistake`.
The launcher writes each launch to the directory, and regards it as done once the test has written the driver's PID.
A driver lives as long as its file exists.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.ha.zookeeper_leader_election import ZooKeeperLeaderElection
from checkpointing.jobs.launching.admission import Demand, Load
from checkpointing.jobs.settings import JobManagerSettings
from checkpointing.main import run
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_graph import JobGraph

LAUNCH = ".launch"
LAUNCHED = ".launched"
ALIVE = ".alive"


class DistantProcess:
    has_started = True
    loss = None

    def __init__(self, directory: Path, pid: int) -> None:
        self.pid = pid
        self._alive = directory / f"{pid}{ALIVE}"

    async def wait(self) -> int | None:
        while self._alive.exists():  # noqa: ASYNC110  (the removal of a file sets no event)
            await asyncio.sleep(0.05)
        return None

    async def end(self, grace_s: float) -> None:
        self._alive.unlink(missing_ok=True)

    def last_log_lines(self) -> str:
        return ""


class DistantLauncher:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def launch(self, spec: DriverSpec) -> DistantProcess:
        name = uuid.uuid4().hex
        written = self._directory / f"{name}.part"
        written.write_text(json.dumps(spec.to_json()))
        written.rename(self._directory / f"{name}{LAUNCH}")
        answer = self._directory / f"{name}{LAUNCHED}"
        while not answer.exists():
            os.sched_yield()
        return DistantProcess(self._directory, int(answer.read_text()))

    def adopt(
        self, pid: int | None, job_id: str, attempt: int, work_directory: Path, pod: str | None = None
    ) -> DistantProcess | None:
        if pid is None or not (self._directory / f"{pid}{ALIVE}").exists():
            return None
        return DistantProcess(self._directory, pid)

    def pod_of(self, configuration: Mapping[str, str], job_id: str, attempt: int) -> None:
        """Return no pod: the drivers are processes."""

    def check(self, graph: JobGraph) -> None:
        """Accept every job."""

    def check_files(self, graph: JobGraph) -> None:
        """Accept every job: none needs files."""

    def demand_of(self, graph: JobGraph) -> Demand | None:
        return Demand(memory=0)

    spare_load = Load()

    def limit_spares(self, room: Load) -> None:
        """Do nothing: there are no spare drivers."""

    def end_spares(self) -> None:
        """Do nothing: there are no spare drivers."""


def freeze() -> None:
    def never_returns(store: HandleCompletedCheckpointStore, checkpoint: object) -> NoReturn:
        threading.Event().wait()
        raise AssertionError

    HandleCompletedCheckpointStore.add_checkpoint = never_returns  # type: ignore[method-assign]


def mistake(directory: Path) -> None:
    contend = ZooKeeperLeaderElection._contend

    def broken(election: ZooKeeperLeaderElection) -> None:
        if (directory / "mistake").exists():
            raise RuntimeError("a mistake of ours")
        contend(election)

    ZooKeeperLeaderElection._contend = broken  # type: ignore[method-assign]


def main(directory: str) -> None:
    settings = JobManagerSettings.from_environ(dict(os.environ))
    asyncio.run(run(settings, {}, lambda text: print(text, flush=True), launcher=DistantLauncher(Path(directory))))


if __name__ == "__main__":
    if sys.argv[2:] == ["freeze"]:
        freeze()
    if sys.argv[2:] == ["mistake"]:
        mistake(Path(sys.argv[1]))
    main(sys.argv[1])
