"""A small job manager with a real WebSocket and real checkpoint storage, and the drivers that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from checkpointing.coordinator.ports import CheckpointLocation
from checkpointing.ids import new_id
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.driver_spec import DriverSpec, HighAvailabilitySpec, LocalRecoverySpec, RestoreSpec
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointKind,
    DeclineCheckpoint,
    DriverState,
    JobManagerMessage,
    Message,
    NotifyComplete,
    Register,
    Registered,
    StatusUpdate,
    TriggerCheckpoint,
    Vertex,
    decode,
    encode,
)
from checkpointing.storage import FileCheckpointStorage
from tests.chaos.cluster import JobManagers
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.spark.bench import RANGES
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 120.0
REAL_DRIVER_S = 240.0  # for what may start a Python, a JVM and a Spark session
T = TypeVar("T")


@dataclass
class Take:
    """The job manager's record of one checkpoint."""

    message: TriggerCheckpoint
    location: CheckpointLocation
    acknowledgements: list[AcknowledgeCheckpoint] = field(default_factory=list)
    declined: DeclineCheckpoint | None = None


class JobManager:
    """A job manager that accepts drivers of one job, triggers checkpoints and completes them, without timeouts.

    If `answer` is set, it is sent to each registering driver instead of the acceptance.
    """

    def __init__(
        self, directory: Path, *, heartbeat_interval_ms: int = 200, heartbeat_timeout_ms: int = 20_000
    ) -> None:
        self.job_id = new_id()
        self.session_id = new_id()
        self.storage = FileCheckpointStorage(str(directory / "checkpoints"), self.job_id)
        self.savepoints = directory / "savepoints"
        self.received: list[Message] = []
        self.headers: list[str | None] = []
        self.takes: dict[int, Take] = {}
        self.answer: JobManagerMessage | None = None
        self._intervals = (heartbeat_interval_ms, heartbeat_timeout_ms)
        self._connection: ServerConnection | None = None
        self._server: Server | None = None
        self.port = 0

    def start(self) -> None:
        self._server = serve(self._serve, "127.0.0.1", self.port)
        self.port = self._server.socket.getsockname()[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
        if self._connection is not None:
            self._connection.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, message: JobManagerMessage) -> None:
        assert self._connection is not None
        self._connection.send(encode(message))

    def _serve(self, connection: ServerConnection) -> None:
        self._connection = connection
        self.headers.append(connection.request.headers.get("Authorization"))
        try:
            for text in connection:
                self._receive(connection, decode(text))
        except ConnectionClosed:
            return

    def _receive(self, connection: ServerConnection, message: Message) -> None:
        if isinstance(message, Register):
            pending = tuple(i for i, take in self.takes.items() if not self._is_over(take))
            connection.send(encode(self.answer or Registered(self.session_id, pending, *self._intervals)))
        elif isinstance(message, AcknowledgeCheckpoint):
            self.takes[message.checkpoint_id].acknowledgements.append(message)
        elif isinstance(message, DeclineCheckpoint):
            self.takes[message.checkpoint_id].declined = message
        self.received.append(message)

    def _is_over(self, take: Take) -> bool:
        return take.declined is not None or len(take.acknowledgements) == sum(v.parallelism for v in self.vertices)

    # --- messages of drivers ---

    def heard(self, kind: type[T]) -> list[T]:
        return [message for message in list(self.received) if isinstance(message, kind)]

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        known = [m.vertices for m in self.received if isinstance(m, StatusUpdate | Register) and m.vertices]
        return known[-1] if known else ()

    def state(self, attempt: int) -> DriverState | None:
        states = [m for m in self.heard(StatusUpdate) if m.attempt == attempt]
        return states[-1].state if states else None

    def await_state(self, attempt: int, state: DriverState) -> StatusUpdate:
        return eventually(
            f"{state} of attempt {attempt}",
            lambda: [m for m in self.heard(StatusUpdate) if m.attempt == attempt and m.state is state],
        )[-1]

    # --- checkpoints ---

    def trigger(self, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> Take:
        target = str(self.savepoints) if kind.is_savepoint else None
        location = self.storage.initialize_location(checkpoint_id, kind, target)
        now = time.time_ns() // 1_000_000
        message = TriggerCheckpoint(
            self.session_id, checkpoint_id, kind, now, 60_000, location.directory, location.shared_directory
        )
        self.takes[checkpoint_id] = Take(message, location)
        self.send(message)
        return self.takes[checkpoint_id]

    def complete(self, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> CompletedCheckpoint:
        take = self.trigger(checkpoint_id, kind)
        eventually(f"checkpoint {checkpoint_id}", lambda: self._is_over(take))
        return self.finish(take)

    def finish(self, take: Take) -> CompletedCheckpoint:
        """Complete the checkpoint by its `_metadata`. The storage checks the presence and size of every file."""
        assert take.declined is None, take.declined
        checkpoint = CompletedCheckpoint(
            job_id=self.job_id,
            job_name="words",
            entry_class="wordcount:wordcount",
            checkpoint_id=take.message.checkpoint_id,
            properties=CheckpointProperties(take.message.kind, RetentionPolicy.RETAIN_ON_CANCELLATION),
            trigger_timestamp=take.message.trigger_timestamp,
            completion_timestamp=take.message.trigger_timestamp,
            operators=tuple(_operator(vertex, take.acknowledgements) for vertex in self.vertices),
            batches={name: batch for ack in take.acknowledgements for name, batch in ack.batches.items()},
            location=take.location.directory,
            shared_location=take.location.shared_directory,
        )
        self.storage.write_metadata(checkpoint)
        self.send(NotifyComplete(self.session_id, checkpoint.checkpoint_id, None))
        return checkpoint


def _operator(vertex: Vertex, acknowledgements: list[AcknowledgeCheckpoint]) -> OperatorState:
    mine = sorted((ack for ack in acknowledgements if ack.vertex_id == vertex.id), key=lambda ack: ack.subtask)
    assert [ack.subtask for ack in mine] == list(range(vertex.parallelism))
    subtasks = tuple(SubtaskState(ack.subtask, ack.metrics, ack.files, 0) for ack in mine)
    return OperatorState(vertex.id, vertex.name, vertex.kind, vertex.query, vertex.parallelism, subtasks)


@dataclass
class Driver:
    process: subprocess.Popen[bytes]
    work: Path

    def kill(self) -> None:
        """Kill the driver and its JVM at once, as a crash of the machine does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)

    @property
    def log(self) -> str:
        return (self.work / "driver.log").read_text()


class Drivers:
    """A launcher that starts driver processes as the real one does, and ends them after the test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Driver] = []

    def start(
        self,
        manager: JobManager,
        entry_class: str,
        program_args: tuple[str, ...],
        *,
        attempt: int = 1,
        restore: CompletedCheckpoint | None = None,
        local: Driver | None = None,
        lease_s: float = 60.0,
        configuration: dict[str, str] | None = None,
        token_file: str | None = None,
        high_availability: HighAvailabilitySpec | None = None,
        program: str = "wordcount.py",
    ) -> Driver:
        work = self._directory / f"attempt-{attempt}"
        work.mkdir(parents=True)
        restored = (
            RestoreSpec(
                restore.location, restore.checkpoint_id, restore.properties.is_savepoint, allow_non_restored_state=False
            )
            if restore
            else None
        )
        spec = DriverSpec(
            job_id=manager.job_id,
            job_name="words",
            attempt=attempt,
            program_path=str(PROGRAMS / program),
            entry_class=entry_class,
            program_args=program_args,
            parallelism=2,
            configuration=configuration or {},
            work_directory=str(work),
            timeline=f"timeline-{attempt}" if local is None else f"timeline-{attempt - 1}",
            job_manager_address=manager.address,
            lease_s=lease_s,
            restore=restored,
            local=LocalRecoverySpec(str(local.work), attempt - 1) if local is not None else None,
            token_file=token_file,
            high_availability=high_availability,
            batch_numbers=next(RANGES) if restore else None,
        )
        (work / "driver.json").write_text(json.dumps(spec.to_json()))
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with (work / "driver.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "checkpointing.spark.driver", str(work / "driver.json")],
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        driver = Driver(process, work)
        self._started.append(driver)
        return driver

    def end_all(self) -> None:
        for driver in self._started:
            if driver.process.poll() is None:
                driver.kill()


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., object]:
    return eventually


@pytest.fixture
def job_manager(tmp_path: Path) -> Iterator[JobManager]:
    manager = JobManager(tmp_path)
    manager.start()
    yield manager
    manager.stop()


@pytest.fixture
def drivers(tmp_path: Path, java_home: Path) -> Iterator[Drivers]:
    """Yield a starter of drivers, which find Java in JAVA_HOME."""
    started = Drivers(tmp_path / "work")
    yield started
    started.end_all()


@pytest.fixture
def launcher_environ() -> dict[str, str]:
    """Return the environment from which `manager` starts drivers. A test module may override it."""
    return dict(os.environ)


@pytest_asyncio.fixture
async def manager(
    tmp_path: Path, java_home: Path, launcher_environ: dict[str, str]
) -> AsyncIterator[RunningJobManager]:
    """Yield a whole job manager in the test's event loop, which starts real drivers."""
    launcher: Any = LocalDriverLauncher(launcher_environ, lambda: java_home, tmp_path / "state")
    running = RunningJobManager(tmp_path, launcher, {}, limit_s=REAL_DRIVER_S)
    await running.start()
    yield running
    await running.shut_down()


@pytest.fixture(scope="module")
def job_manager_settings() -> dict[str, str]:
    """Return the settings of the process of `job_managers`. A test module may override them."""
    return {}


@pytest.fixture(scope="module")
def job_managers(
    tmp_path_factory: pytest.TempPathFactory, java_home: Path, job_manager_settings: dict[str, str]
) -> Iterator[JobManagers]:
    """Yield one job manager, as a process, for all tests of a module."""
    managers = JobManagers(tmp_path_factory.mktemp("manager"), zookeeper_hosts="", **job_manager_settings)
    try:
        managers.start()
        yield managers
    finally:
        managers.stop()


@dataclass(frozen=True)
class Words:
    """The input files of a word count, and the counts that it wrote."""

    input: Path
    output: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--input", str(self.input), f"--output={self.output}")

    def write(self, name: str, words: list[str]) -> None:
        partial = self.input / f".{name}"
        partial.write_text("\n".join(words))
        partial.rename(self.input / f"{name}.txt")

    def counts(self) -> dict[str, int]:
        """Return the newest count of each word."""
        newest: dict[str, int] = {}
        for file in sorted(self.output.glob("*.json")):
            newest.update(json.loads(file.read_text()))
        return newest

    def hold(self) -> None:
        """Block the next batch in its sink until `let_go` is called."""
        (self.output / "held").unlink(missing_ok=True)
        (self.output / "hold").touch()

    def let_go(self) -> None:
        (self.output / "hold").unlink()

    def is_held(self) -> bool:
        return (self.output / "held").exists()

    def batches(self) -> int:
        return len(list(self.output.glob("*.json")))


@pytest.fixture
def words(tmp_path: Path) -> Words:
    made = Words(tmp_path / "in", tmp_path / "out")
    made.input.mkdir()
    made.output.mkdir()
    return made
