"""A driver without Spark. It sends messages over a real WebSocket and writes real files, with failure switches."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import websockets
from websockets.asyncio.client import ClientConnection, connect

from checkpointing.jobs.launcher import LaunchFailed, Loss
from checkpointing.jobs.launching.admission import Demand, Load
from checkpointing.jobs.launching.demand import demand_of
from checkpointing.jobs.launching.deployment import deployment_of
from checkpointing.jobs.launching.local import check_files_here
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    AfterRestore,
    BatchNumbersExtended,
    Cancel,
    CheckpointKind,
    DeclineCheckpoint,
    DriverState,
    ExceptionInfo,
    Executor,
    FinishCause,
    Heartbeat,
    JobManagerMessage,
    NotifyComplete,
    QueryProgress,
    Refused,
    Register,
    Registered,
    StateFile,
    StatusUpdate,
    Stop,
    SubtaskMetrics,
    TriggerCheckpoint,
    Vertex,
    VertexKind,
    VertexRows,
    Wait,
    decode,
    encode,
)
from checkpointing.storage import files_for
from checkpointing.storage.locations import JOB_MANAGER_MEMORY

_pids = itertools.count(1_000_000)

SOURCE = Vertex("1" * 32, "Source: lines", VertexKind.SOURCE, 1, "wordcount")
COUNT = Vertex("2" * 32, "count", VertexKind.STATEFUL, 2, "wordcount")
SINK = Vertex("3" * 32, "Sink: console", VertexKind.SINK, 1, "wordcount")
VERTICES = (SOURCE, COUNT, SINK)


class FakeProcess:
    """A stand-in for the driver's process. `end` stops the driver as a signal does."""

    left_nothing = False
    has_started = True
    loss: Loss | None = None

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self.pid = driver.pid
        self.exited: asyncio.Future[int] = driver.loop.create_future()
        self.end_calls = 0
        self.exceeded: int | None = None

    def exceeded_memory_limit(self) -> int | None:
        return self.exceeded

    async def wait(self) -> int | None:
        return await asyncio.shield(self.exited)

    async def end(self, grace_s: float) -> None:
        self.end_calls += 1
        await asyncio.wait({self.exited}, timeout=0.2 if self._driver.ending else 0)
        self._driver.kill(-15)
        await self.wait()

    def last_log_lines(self) -> str:
        return "the last line of the log"


class FakeDriver:
    """A driver with failure switches.

    They are registers, becomes_running, acknowledges, decline_reason, sends_heartbeats, obeys_stop and obeys_cancel.

    The first two, `after_restore` and `repeats_numbers` are set at the launcher, because they matter before a test can
    reach the driver.
    """

    def __init__(self, spec: DriverSpec, loop: asyncio.AbstractEventLoop, launcher: FakeLauncher) -> None:
        self.spec = spec
        self.loop = loop
        self.launcher = launcher
        self.pid = next(_pids)
        self.state = DriverState.INITIALIZING
        self.session_id = ""
        self.refusals: list[str] = []
        self.waits = 0
        self.completed: list[int] = []
        self.triggers: list[TriggerCheckpoint] = []
        self.known_at_registration: list[tuple[int, ...]] = []
        self.stops: list[Stop] = []
        self.cancels = 0
        self.registrations = 0
        self.ending = False
        self.address = spec.job_manager_address
        self.connection: ClientConnection | None = None
        self.task: asyncio.Task[None] | None = None
        self.process = FakeProcess(self)
        self.acknowledges = launcher.acknowledges
        self.decline_reason: str | None = None
        self.sends_heartbeats = True
        self.batch_id = 5
        self.numbers_ends: list[int | None] = []
        self.lingers = False
        self.has_advanced = True
        self.batches: int | None = None
        self.snapshot_batches = {"wordcount": 7}
        self.obeys_stop = True
        self.obeys_cancel = launcher.obeys_cancel
        self.becomes_running = launcher.becomes_running
        self.registers = launcher.registers
        self.shared_files = launcher.shared_files
        self.vertices = (
            SOURCE,
            COUNT,
            replace(SINK, after_restore=launcher.after_restore, repeats_numbers=launcher.repeats_numbers),
        )

    def start(self) -> None:
        if self.registers:
            self.task = self.loop.create_task(self._run())

    def kill(self, code: int) -> None:
        """End the process without a message to the job manager."""
        if self.task is not None:
            self.task.cancel()
        self._exit(code)

    async def report_failure(
        self,
        message: str,
        *,
        name: str = "ValueError",
        recoverable: bool = True,
        stacktrace: str | None = None,
        is_mistake: bool = False,
        keeps_state: bool = False,
    ) -> None:
        trace = stacktrace or f"{name}: {message}"
        info = ExceptionInfo(name, message, trace, 1, "count", recoverable, is_mistake, keeps_state)
        await self._report(DriverState.FAILED, exception=info)
        self._exit(1)

    async def runs(self) -> None:
        """Report that the driver's queries have started."""
        await self._report(DriverState.RUNNING)

    async def ends(self, *, has_advanced: bool = True) -> None:
        """Report that the driver's queries have ended by themselves."""
        self.has_advanced = has_advanced
        await self._report(DriverState.ENDED)

    async def finish(self, cause: FinishCause | None = FinishCause.BY_ITSELF) -> None:
        await self._report(DriverState.FINISHED, finish_cause=cause)
        if not self.lingers:
            self._exit(0)

    async def send(self, message: object) -> None:
        assert self.connection is not None
        await self.connection.send(encode(message))  # type: ignore[arg-type]

    def register(self, vertices: tuple[Vertex, ...]) -> Register:
        spec, batches = self.spec, {"wordcount": 4}
        return Register(
            spec.job_id,
            spec.attempt,
            self.pid,
            self.state,
            vertices,
            batches,
            has_advanced=self.has_advanced,
            secret=spec.secret,
        )

    def _exit(self, code: int) -> None:
        if not self.process.exited.done():
            self.process.exited.set_result(code)

    async def _run(self) -> None:
        """Connect, and connect again after each lost connection, as a driver does that outlives its job manager."""
        while not self.process.exited.done():
            with contextlib.suppress(OSError, websockets.WebSocketException):
                url = self.address.replace("http://", "ws://") + "/drivers"
                async with connect(url, additional_headers=self.launcher.headers, proxy=None) as connection:
                    self.connection = connection
                    await self._converse(connection)
            if self.refusals:
                self._exit(3)
            await asyncio.sleep(0.02)

    async def _converse(self, connection: ClientConnection) -> None:
        vertices = self.vertices if self.state in (DriverState.RUNNING, DriverState.ENDED) else ()
        await connection.send(encode(self.register(vertices)))
        beats = asyncio.create_task(self._beat(connection))
        try:
            async for text in connection:
                message = decode(text)
                await self._receive(message)  # type: ignore[arg-type]
        finally:
            beats.cancel()

    async def _receive(self, message: JobManagerMessage) -> None:
        match message:
            case Registered():
                self.session_id = message.session_id
                self.registrations += 1
                self.known_at_registration.append(message.pending_checkpoints)
                self.numbers_ends.append(message.batch_numbers_end)
                if self.state is DriverState.INITIALIZING and self.becomes_running:
                    await self.runs()
            case Refused():
                self.refusals.append(message.reason)
                assert self.connection is not None
                await self.connection.close()
            case Wait():
                self.waits += 1
            case BatchNumbersExtended():
                self.numbers_ends.append(message.end)
            case TriggerCheckpoint():
                self.triggers.append(message)
                await self._checkpoint(message)
            case NotifyComplete():
                self.completed.append(message.checkpoint_id)
            case Stop():
                self.stops.append(message)
                if self.obeys_stop:
                    self.ending = True
                    await self.finish(message.cause)
            case Cancel():
                self.cancels += 1
                if self.obeys_cancel:
                    self.ending = True
                    await self._report(DriverState.CANCELED)
                    self._exit(0)
            case _:
                pass

    async def _checkpoint(self, trigger: TriggerCheckpoint) -> None:
        if self.decline_reason is not None:
            await self.send(
                DeclineCheckpoint(
                    self.session_id,
                    self.spec.job_id,
                    self.spec.attempt,
                    trigger.checkpoint_id,
                    self.decline_reason,
                    "the fake driver declines",
                )
            )
        elif self.acknowledges:
            for vertex, index in [(v, i) for v in self.vertices for i in range(v.parallelism)]:
                await self.send(self._acknowledgement(trigger, vertex, index))

    def _acknowledgement(self, trigger: TriggerCheckpoint, vertex: Vertex, index: int) -> AcknowledgeCheckpoint:
        content = f"{vertex.id} {index}".encode()
        name = f"wordcount/state/{vertex.id}-{index}"
        is_savepoint = trigger.kind is not CheckpointKind.CHECKPOINT
        location = name if is_savepoint else f"chk-{trigger.checkpoint_id}/{name}"
        contents = {}
        if trigger.directory.startswith(JOB_MANAGER_MEMORY):
            contents[location] = base64.b64encode(content).decode()
        else:
            files = files_for(trigger.directory)
            files.make_directory(f"{trigger.directory}/wordcount/state")
            files.write_durably(f"{trigger.directory}/{name}", content)
        file = StateFile(f"state/{vertex.id}-{index}", location, len(content), hashlib.sha256(content).hexdigest())
        return AcknowledgeCheckpoint(
            session_id=self.session_id,
            job_id=self.spec.job_id,
            attempt=self.spec.attempt,
            checkpoint_id=trigger.checkpoint_id,
            vertex_id=vertex.id,
            subtask=index,
            metrics=SubtaskMetrics(sync_duration=1, checkpointed_size=len(content), state_size=len(content)),
            files=(file, *(self._shared(trigger, name) for name in self.shared_files)),
            batches=self.snapshot_batches,
            contents=contents,
        )

    def _shared(self, trigger: TriggerCheckpoint, name: str) -> StateFile:
        """Write a shared file into the pool and return it."""
        content = name.encode()
        Path(str(trigger.shared_directory), name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        return StateFile(f"state/{name}", f"shared/{name}", len(content), digest, shared=True)

    async def _report(
        self,
        state: DriverState,
        exception: ExceptionInfo | None = None,
        finish_cause: FinishCause | None = None,
    ) -> None:
        vertices = self.vertices if state is DriverState.RUNNING else ()
        self.state = state
        update = StatusUpdate(
            session_id=self.session_id,
            job_id=self.spec.job_id,
            attempt=self.spec.attempt,
            state=state,
            vertices=vertices,
            exception=exception,
            finish_cause=finish_cause,
            has_advanced=self.has_advanced,
        )
        await self.send(update)

    async def _beat(self, connection: ClientConnection) -> None:
        rows = {SOURCE.id: VertexRows(written=60), COUNT.id: VertexRows(state=7, updated=40, removed=0, late=3)}
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await asyncio.sleep(0.05)
                if self.sends_heartbeats and self.session_id:
                    executors = (Executor("driver", "127.0.0.1:4040", 2, 400 << 20, 100 << 20, 1),)
                    progress = {
                        "wordcount": QueryProgress(
                            self.batch_id, input_rows=12, batch_duration_ms=34, rows=rows, batches=self.batches
                        )
                    }
                    beat = Heartbeat(self.session_id, self.spec.job_id, self.spec.attempt, progress, executors)
                    await connection.send(encode(beat))


class FakeLauncher:
    """A launcher of FakeDrivers on `loop`. Switches: `launch_error`, and the initial switches of its drivers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.drivers: list[FakeDriver] = []
        self.headers: dict[str, str] = {}
        self.launch_error: str | None = None
        self.acknowledges = True
        self.obeys_cancel = True
        self.becomes_running = True
        self.registers = True
        self.shared_files: tuple[str, ...] = ()
        self.after_restore: AfterRestore | None = None
        self.repeats_numbers = False

    @property
    def specs(self) -> list[DriverSpec]:
        return [driver.spec for driver in self.drivers]

    def launch(self, spec: DriverSpec) -> FakeProcess:
        if self.launch_error is not None:
            raise LaunchFailed(self.launch_error)
        driver = asyncio.run_coroutine_threadsafe(self._launched(spec), self._loop).result()
        return driver.process

    async def _launched(self, spec: DriverSpec) -> FakeDriver:
        driver = FakeDriver(spec, self._loop, self)
        self.drivers.append(driver)
        driver.start()
        return driver

    def adopt(
        self, pid: int | None, job_id: str, attempt: int, work_directory: Path, pod: str | None = None
    ) -> FakeProcess | None:
        for driver in self.drivers:
            if (driver.pid, driver.spec.job_id, driver.spec.attempt) == (pid, job_id, attempt):
                return None if driver.process.exited.done() else driver.process
        return None

    def pod_of(self, configuration: Mapping[str, str], job_id: str, attempt: int) -> None:
        """Return no pod: the drivers are processes."""

    def check(self, graph: JobGraph) -> None:
        """Accept every job."""

    def check_files(self, graph: JobGraph) -> None:
        check_files_here(graph.configuration)

    def demand_of(self, graph: JobGraph) -> Demand | None:
        return demand_of(graph.configuration, deployment_of(graph.configuration, parallelism=graph.parallelism))

    spare_load = Load()

    def limit_spares(self, room: Load) -> None:
        """Do nothing: there are no spare drivers."""

    def end_spares(self) -> None:
        """Do nothing: there are no spare drivers."""

    async def close(self) -> None:
        for driver in self.drivers:
            driver.kill(-9)
        tasks = [driver.task for driver in self.drivers if driver.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
