"""Lives of CountJob on a cluster, started through the client; those that still live at the end are canceled."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from monitoring.engine.answers import TERMINAL_STATES
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from tests.monitoring.flink.cluster import FlinkCluster
from tests.waiting import eventually

CONFIGURATION = {"execution.checkpointing.interval": "1 s", "execution.checkpointing.timeout": "10 s"}

T = TypeVar("T")


class CountJobs:
    """`switches`: the directory whose files steer the jobs, see CountJob.java."""

    def __init__(self, flink: FlinkCluster, jar: bytes, directory: Path) -> None:
        self.flink = flink
        self.switches = directory / "switches"
        self.switches.mkdir()
        self._jar = jar
        self._jar_id = ""
        self._started: list[str] = []

    def __enter__(self) -> Self:
        self._jar_id = self.ask(lambda client: client.upload_jar("count.jar", self._jar))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for switch in self.switches.iterdir():
            switch.unlink()
        self.ask(self._clear)

    def turn(self, switch: str, *, on: bool) -> None:
        if on:
            (self.switches / switch).touch()
        else:
            (self.switches / switch).unlink(missing_ok=True)

    def start(
        self,
        name: str = "count-job",
        savepoint: str | None = None,
        configuration: Mapping[str, str] | None = None,
        checkpoints: int = 1,
    ) -> str:
        """The id of a job that runs and has completed so many checkpoints."""
        settings = CONFIGURATION | dict(configuration or {})
        job_id = self.ask(lambda client: self.run(client, name, savepoint=savepoint, configuration=settings))
        self._started.append(job_id)
        eventually(f"{name} runs", lambda: self.flink.state(job_id) == "RUNNING")
        eventually(f"{name} has {checkpoints} checkpoints", lambda: self.flink.completed(job_id) >= checkpoints)
        return job_id

    def wait(self, job_id: str, state: str) -> None:
        eventually(f"{job_id} is {state}", lambda: self.flink.state(job_id) == state)

    def ask(self, call: Callable[[FlinkClient], Awaitable[T]]) -> T:
        """One call through a client of its own."""

        async def asked() -> T:
            async with FlinkClient(Connection(self.flink.url)) as client:
                return await call(client)

        return asyncio.run(asked())

    async def run(
        self,
        client: FlinkClient,
        name: str,
        *,
        job_id: str = "",
        savepoint: str | None = None,
        configuration: Mapping[str, str] = CONFIGURATION,
        entry_class: str = "CountJob",
    ) -> str:
        return await client.run_jar(
            self._jar_id,
            job_id=job_id or uuid.uuid4().hex,
            entry_class=entry_class,
            program_args=[str(self.switches)],
            parallelism=2,
            savepoint_path=savepoint,
            configuration=configuration,
            job_name=name,
        )

    async def _clear(self, client: FlinkClient) -> None:
        for job in await client.jobs_overview():
            if job.id in self._started and job.state not in TERMINAL_STATES:
                await client.cancel(job.id)
        await client.delete_jar(self._jar_id)
