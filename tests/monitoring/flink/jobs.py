"""Runs of CountJob on a cluster, started through Waymark's client and canceled after the test."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from monitoring.engine.answers import TERMINAL_STATES
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.engine.errors import NotFound, Refused
from tests.monitoring.flink.cluster import FlinkCluster
from tests.waiting import eventually

CONFIGURATION = {"execution.checkpointing.interval": "1 s", "execution.checkpointing.timeout": "10 s"}

T = TypeVar("T")


class CountJobs:
    """A starter of CountJobs. The files in the directory `switches` control the jobs, see CountJob.java."""

    def __init__(self, flink: FlinkCluster, jar: bytes, directory: Path) -> None:
        self.flink = flink
        self.switches = directory / "switches"
        self.switches.mkdir()
        self._jar = jar
        self.jar_id = ""
        self._started: list[str] = []

    def __enter__(self) -> Self:
        self.jar_id = self.ask(lambda client: client.upload_jar("count.jar", self._jar))
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
        program_args: Sequence[str] = (),
    ) -> str:
        """Start a job and wait until it runs and has completed `checkpoints` checkpoints. Return its ID.

        The job's arguments are the directory of switches and `program_args`.
        """
        settings = CONFIGURATION | dict(configuration or {})
        job_id = self.ask(lambda client: self._launch(client, name, savepoint, settings, program_args))
        self._started.append(job_id)
        eventually(f"{name} runs", lambda: self.flink.state(job_id) == "RUNNING")
        eventually(f"{name} has {checkpoints} checkpoints", lambda: self.flink.completed(job_id) >= checkpoints)
        return job_id

    def adopt(self, job_id: str) -> None:
        """Cancel this job, too, after the test."""
        self._started.append(job_id)

    def wait(self, job_id: str, state: str) -> None:
        eventually(f"{job_id} is {state}", lambda: self.flink.state(job_id) == state)

    def ask(self, call: Callable[[FlinkClient], Awaitable[T]]) -> T:
        """Make one call through a new client, and return its result."""

        async def asked() -> T:
            async with FlinkClient(Connection(self.flink.url)) as client:
                return await call(client)

        return asyncio.run(asked())

    async def _launch(
        self, client: FlinkClient, name: str, savepoint: str | None, settings: Mapping[str, str], rest: Sequence[str]
    ) -> str:
        return await self.run(
            client, name, savepoint=savepoint, configuration=settings, entry_class=None, program_args=rest
        )

    async def run(
        self,
        client: FlinkClient,
        name: str,
        *,
        job_id: str = "",
        savepoint: str | None = None,
        configuration: Mapping[str, str] = CONFIGURATION,
        entry_class: str | None = "CountJob",
        program_args: Sequence[str] = (),
    ) -> str:
        return await client.run_jar(
            self.jar_id,
            job_id=job_id or uuid.uuid4().hex,
            entry_class=entry_class,
            program_args=[str(self.switches), *program_args],
            parallelism=2,
            savepoint_path=savepoint,
            configuration=configuration,
            job_name=name,
        )

    async def _clear(self, client: FlinkClient) -> None:
        for job in await client.jobs_overview():
            if job.id in self._started and job.state not in TERMINAL_STATES:
                await client.cancel(job.id)
        with suppress(NotFound, Refused):  # a test may have deleted the jar
            await client.delete_jar(self.jar_id)
