"""A whole job manager in the test's event loop, reached over real HTTP, with fake drivers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import uvicorn.server

from checkpointing.jobs.settings import JobManagerSettings
from checkpointing.main import run
from checkpointing.rest.client import JobManagerClient
from tests.checkpointing.jobs.fake_driver import FakeDriver, FakeLauncher
from tests.checkpointing.jobs.loop_guard import watched_loop
from tests.urls import read

LIMIT_S = 60.0
PROGRAM = "def wordcount(spark, args):\n    return spark\n"


class _ShortPauses:
    """asyncio with short pauses for uvicorn, which checks every 0.1 s whether it should end.

    Hundreds of tests end a job manager, so the original pauses would add up.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s / 10)


uvicorn.server.asyncio = _ShortPauses()  # type: ignore[assignment]


async def eventually(condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Wait until `condition` returns a true value, and return that value."""
    async with asyncio.timeout(limit_s):
        while not (value := await _called(condition)):  # noqa: ASYNC110  (the condition sets no event)
            await asyncio.sleep(0.02)
        return value


async def _called(condition: Callable[[], Any]) -> Any:
    value = condition()
    return await value if isinstance(value, Awaitable) else value


class RunningJobManager:
    def __init__(
        self, directory: Path, launcher: FakeLauncher, environ: Mapping[str, str], *, limit_s: float = LIMIT_S
    ) -> None:
        self.directory = directory
        self.limit_s = limit_s
        self.launcher = launcher
        self.settings = JobManagerSettings.from_environ(
            {
                "WAYMARK_JOBMANAGER_PORT": "0",
                "WAYMARK_JOBMANAGER_STATE": str(directory / "state"),
                "WAYMARK_HEARTBEAT_INTERVAL": "0.1",
                "WAYMARK_HEARTBEAT_TIMEOUT": "15",
                "WAYMARK_CANCEL_TIMEOUT": "5",
                "WAYMARK_DRIVER_MEMORY": "0",  # fake drivers need no memory
                "WAYMARK_DRIVER_STARTS": "100",
                **environ,
            }
        )
        self.stop = asyncio.Event()
        self.fatal_errors: list[Exception] = []
        self.end_process: Callable[[Exception], None] = self.fatal_errors.append
        self.address = ""
        self.client = JobManagerClient("http://127.0.0.1:1")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        text: list[str] = []
        self._task = asyncio.create_task(
            run(
                self.settings,
                {},
                text.append,
                launcher=self.launcher,
                stop=self.stop,
                end_process=self.end_process,
            )
        )
        await eventually(lambda: text or self._task.done())  # type: ignore[union-attr]
        if self._task.done():
            await self._task
        self.address = text[0].split()[3]
        self.client = JobManagerClient(self.address, self.settings.token)

    async def shut_down(self) -> None:
        self.stop.set()
        if self._task is not None:
            await self._task
        assert self.fatal_errors == []

    async def get(self, path: str) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.get, path)

    async def get_any(self, path: str) -> Any:
        """Get an answer that is not a JSON object."""
        return json.loads(await asyncio.to_thread(read, f"{self.address}{path}"))

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return await asyncio.to_thread(self.client.post, path, body)

    async def cancel(self, job_id: str) -> None:
        await asyncio.to_thread(self.client.cancel, job_id)

    async def delete_program(self, jar_id: str) -> None:
        await asyncio.to_thread(self.client.delete_program, jar_id)

    async def upload(self, source: str = PROGRAM, name: str = "wordcount.py") -> str:
        file = self.directory / name
        file.write_text(source)
        return await asyncio.to_thread(self.client.upload, file)

    async def submit(self, configuration: Mapping[str, str] | None = None, **request: Any) -> str:
        """Submit a job and return its ID."""
        jar_id = await self.upload()
        body = {"entryClass": "wordcount.py:wordcount", "flinkConfiguration": dict(configuration or {}), **request}
        return str((await self.post(f"/jars/{jar_id}/run", body))["jobid"])

    async def submit_running(self, configuration: Mapping[str, str] | None = None, **request: Any) -> str:
        job_id = await self.submit(configuration, **request)
        await self.until(job_id, "RUNNING")
        return job_id

    async def status(self, job_id: str) -> str:
        return str((await self.get(f"/jobs/{job_id}/status"))["status"])

    async def until(self, job_id: str, status: str) -> None:
        async def reached() -> bool:
            return await self.status(job_id) == status

        await eventually(reached, self.limit_s)

    async def operation(self, path: str) -> dict[str, Any]:
        """Wait for an asynchronous operation and return its result."""

        async def completed() -> list[dict[str, Any]]:
            answer = await self.get(path)
            return [answer["operation"]] if answer["status"]["id"] == "COMPLETED" else []

        (result,) = await eventually(completed, self.limit_s)
        return dict(result)

    async def savepoint(self, job_id: str, path: str = "savepoints", **body: Any) -> dict[str, Any]:
        """Trigger a savepoint (or a stop) and wait for its result."""
        trigger = (await self.post(f"/jobs/{job_id}/{path}", body))["request-id"]
        return await self.operation(f"/jobs/{job_id}/savepoints/{trigger}")

    async def checkpoint(self, job_id: str) -> int:
        trigger = (await self.post(f"/jobs/{job_id}/checkpoints"))["request-id"]
        return int((await self.operation(f"/jobs/{job_id}/checkpoints/{trigger}"))["checkpointId"])

    async def driver(self, attempt: int) -> FakeDriver:
        """Wait for the driver of an attempt to register, and return it (for tests with one job)."""

        def running() -> FakeDriver | None:
            found = [driver for driver in self.launcher.drivers if driver.spec.attempt == attempt]
            return found[-1] if found and found[-1].registrations else None

        return await eventually(running)  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def running_job_manager(
    directory: Path, launcher: FakeLauncher | None = None, **environ: str
) -> AsyncIterator[RunningJobManager]:
    own = launcher is None
    launcher = launcher or FakeLauncher(asyncio.get_running_loop())
    manager = RunningJobManager(directory, launcher, environ)
    with watched_loop() as calls:
        await manager.start()
        try:
            yield manager
        finally:
            await manager.shut_down()
            if own:
                await launcher.close()
    assert not calls, "file system calls on the event loop:\n" + "\n".join(dict.fromkeys(calls))
