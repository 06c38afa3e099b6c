"""Test doubles for the timer, the I/O, the stores and the driver of a checkpoint coordinator, with failure switches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from checkpointing.clock import ManualClock
from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.pending import JobIdentity
from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.jobs.coordinator_runner import CoordinatorRunner, CoordinatorSteps
from checkpointing.model.checkpoint import CompletedCheckpoint, RetentionPolicy
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    Channel,
    CheckpointKind,
    DeclineCheckpoint,
    JobManagerMessage,
    NotifyAborted,
    NotifyComplete,
    StateFile,
    SubtaskMetrics,
    TriggerCheckpoint,
    Vertex,
    VertexKind,
)
from checkpointing.model.status import JobStatus

T = TypeVar("T")

JOB_ID = "0123456789abcdef0123456789abcdef"
SOURCE = Vertex(id="a" * 32, name="Source: files", kind=VertexKind.SOURCE, parallelism=1, query="q")
STATEFUL = Vertex(id="b" * 32, name="count", kind=VertexKind.STATEFUL, parallelism=2, query="q")
VERTICES = (SOURCE, STATEFUL)
SAVEPOINTS = "/savepoints"


@dataclass
class ManualTimerHandle:
    due: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTimer:
    """A timer that fires only in `advance`, in the order in which callbacks are due."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._handles: list[ManualTimerHandle] = []

    @property
    def pending(self) -> list[ManualTimerHandle]:
        return [handle for handle in self._handles if not handle.cancelled]

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> ManualTimerHandle:
        handle = ManualTimerHandle(self._clock.monotonic() + delay_s, callback)
        self._handles.append(handle)
        return handle

    def advance(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        while due := [handle for handle in self.pending if handle.due <= end + 1e-9]:
            first = min(due, key=lambda handle: handle.due)
            self._handles.remove(first)
            self._clock.advance(max(0.0, first.due - self._clock.monotonic()))
            first.callback()
        self._handles = self.pending
        self._clock.advance(max(0.0, end - self._clock.monotonic()))


class ManualIo:
    """An I/O executor that runs work at once while `inline`, else when a test calls `run_next` or `run_all`."""

    def __init__(self, *, inline: bool = True) -> None:
        self.inline = inline
        self._queue: list[Callable[[], None]] = []

    @property
    def num_queued(self) -> int:
        return len(self._queue)

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], None], on_error: Callable[[Exception], None]
    ) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 (the contract: every error goes to the callback)
                on_error(error)
            else:
                on_done(result)

        if self.inline:
            run()
        else:
            self._queue.append(run)

    def run_next(self, index: int = 0) -> None:
        self._queue.pop(index)()

    def run_all(self) -> None:
        while self._queue:
            self.run_next()


@dataclass
class RecordingTasks:
    session_id: str = "session-1"
    triggered: list[TriggerCheckpoint] = field(default_factory=list)
    completed: list[NotifyComplete] = field(default_factory=list)
    aborted: list[NotifyAborted] = field(default_factory=list)

    def send(self, message: JobManagerMessage) -> None:
        match message:
            case TriggerCheckpoint():
                self.triggered.append(message)
            case NotifyComplete():
                self.completed.append(message)
            case NotifyAborted():
                self.aborted.append(message)
            case _:
                raise AssertionError(f"the coordinator does not send {message}")


@dataclass
class InMemoryCounter:
    value: int = 1
    error: Exception | None = None
    shut_down_with: JobStatus | None = None

    def get_and_increment(self) -> int:
        if self.error is not None:
            raise self.error
        self.value += 1
        return self.value - 1

    def get(self) -> int:
        return self.value

    def set_count(self, value: int) -> None:
        self.value = value

    def shutdown(self, status: JobStatus) -> None:
        self.shut_down_with = status


class InMemoryStore:
    """A store that retains the newest `num_retained` checkpoints.

    `add_error` fails adds; with `add_anyway` the store has the checkpoint in spite of the error.
    """

    def __init__(self, num_retained: int = 1) -> None:
        self._num_retained = num_retained
        self._checkpoints: list[CompletedCheckpoint] = []
        self.stored_before: list[CompletedCheckpoint] = []
        self.add_error: Exception | None = None
        self.add_anyway = False
        self.recover_error: Exception | None = None
        self.shutdown_error: Exception | None = None

    @property
    def checkpoints(self) -> Sequence[CompletedCheckpoint]:
        return tuple(self._checkpoints)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        return self._checkpoints[-1] if self._checkpoints else None

    def add_checkpoint(self, checkpoint: CompletedCheckpoint) -> Sequence[CompletedCheckpoint]:
        if self.add_error is not None:
            if self.add_anyway:
                self._checkpoints.append(checkpoint)
            raise self.add_error
        self._checkpoints.append(checkpoint)
        dropped = self._checkpoints[: -self._num_retained]
        self._checkpoints = self._checkpoints[-self._num_retained :]
        return dropped

    def withdraw(self, checkpoint_id: int) -> bool:
        if self.add_error is not None:
            return False
        self._checkpoints = [kept for kept in self._checkpoints if kept.checkpoint_id != checkpoint_id]
        return True

    def recover(self) -> None:
        if self.recover_error is not None:
            raise self.recover_error
        self._checkpoints = list(self.stored_before)

    def shutdown(self, status: JobStatus) -> Sequence[CompletedCheckpoint]:
        if self.shutdown_error is not None:
            raise self.shutdown_error
        if not status.globally_terminal:
            return ()
        dropped, self._checkpoints = self._checkpoints, []
        return dropped


class InMemoryStorage:
    """A storage that keeps directories and shared files as sets of names.

    Each `*_error` fails the call of that name while it is set.
    """

    def __init__(self) -> None:
        self.directories: set[str] = set()
        self.metadata: dict[str, CompletedCheckpoint] = {}
        self.shared: set[str] = set()
        self.missing_when_written: set[str] = set()
        self.discarded: list[str] = []
        self.shared_discarded: list[str] = []
        self.claimed_discarded: list[str] = []
        self.initialize_error: Exception | None = None
        self.write_error: Exception | None = None
        self.discard_error: Exception | None = None
        self.discard_shared_error: Exception | None = None
        self.num_shared_tries = 0
        self.emptied = False
        self._savepoint_numbers = itertools.count(1)

    def initialize_location(
        self, checkpoint_id: int, kind: CheckpointKind, target_directory: str | None
    ) -> CheckpointLocation:
        if self.initialize_error is not None:
            raise self.initialize_error
        if kind.is_savepoint:
            location = CheckpointLocation(f"{target_directory}/savepoint-{next(self._savepoint_numbers)}", None)
        else:
            location = CheckpointLocation(f"/checkpoints/chk-{checkpoint_id}", "/checkpoints/shared")
        assert location.directory not in self.directories
        self.directories.add(location.directory)
        return location

    def write_metadata(self, checkpoint: CompletedCheckpoint) -> int:
        if self.write_error is not None:
            raise self.write_error
        self.missing_when_written |= {file.location for file in checkpoint.files if file.shared} - self.shared
        self.metadata[checkpoint.location] = checkpoint
        return 7

    def discard_location(self, location: CheckpointLocation) -> None:
        if self.discard_error is not None:
            raise self.discard_error
        self.directories.discard(location.directory)
        self.metadata.pop(location.directory, None)
        self.discarded.append(location.directory)

    def discard_claimed(self, location: str) -> None:
        self.claimed_discarded.append(location)

    def discard_shared(self, files: Sequence[StateFile]) -> None:
        self.num_shared_tries += 1
        if self.discard_shared_error is not None:
            raise self.discard_shared_error
        for file in files:
            assert file.shared
            self.shared.discard(file.location)
            self.shared_discarded.append(file.location)

    def remove_empty_directories(self) -> None:
        self.emptied = True


def shared_file(name: str) -> StateFile:
    return StateFile(path=f"state/{name}", location=f"shared/{name}", size=1, checksum=name, shared=True)


def private_file(checkpoint_id: int, name: str) -> StateFile:
    return StateFile(path=f"state/{name}", location=f"chk-{checkpoint_id}/{name}", size=1, checksum=name)


class CoordinatorHarness:
    """A coordinator of a job with one source and two stateful subtasks, with doubles. `io.inline` is initially on."""

    def __init__(
        self,
        config: CheckpointConfiguration | None = None,
        *,
        num_retained: int = 1,
        vertices: tuple[Vertex, ...] = VERTICES,
        inline_io: bool = True,
        initial_delay_ms: Callable[[int, int], int] = min,
        **changes: Any,
    ) -> None:
        base = config or CheckpointConfiguration(
            timeout_ms=60_000,
            savepoint_directory=SAVEPOINTS,
            retention=RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS,
        )
        self.config = replace(base, **changes)
        self.clock = ManualClock()
        self.timer = ManualTimer(self.clock)
        self.io = ManualIo(inline=inline_io)
        self.tasks = RecordingTasks()
        self.counter = InMemoryCounter()
        self.store = InMemoryStore(num_retained)
        self.storage = InMemoryStorage()
        self.plan = CheckpointPlan(vertices, ready=True)
        self.job_failures: list[tuple[str, CheckpointException]] = []
        self.fail_job_error: Exception | None = None
        self.left_behind: list[tuple[str, str]] = []
        coordinator = CheckpointCoordinator(
            JobIdentity(JOB_ID, "wordcount", "wordcount:wordcount"),
            self.tasks.session_id,
            self.config,
            self.clock,
            lambda: self.plan,
            initial_delay_ms=initial_delay_ms,
        )
        self.stats = coordinator.stats
        self.coordinator = CoordinatorRunner(
            coordinator,
            CoordinatorSteps(self.storage, self.store, self.counter),
            io=self.io,
            timer=self.timer,
            send=self.tasks.send,
            fail_job=self._fail_job,
            left_behind=lambda what, error: self.left_behind.append((what, str(error))),
        )

    def _fail_job(self, message: str, exception: CheckpointException) -> None:
        self.job_failures.append((message, exception))
        if self.fail_job_error is not None:
            raise self.fail_job_error

    def advance(self, seconds: float) -> None:
        self.timer.advance(seconds)

    def tasks_run(self, ready: bool) -> None:
        self.plan = CheckpointPlan(self.plan.vertices, ready=ready, reason="" if ready else "The driver is starting.")

    @property
    def triggered_ids(self) -> list[int]:
        return [message.checkpoint_id for message in self.tasks.triggered]

    @property
    def subtasks(self) -> list[tuple[str, int]]:
        return [(vertex.id, index) for vertex in self.plan.vertices for index in range(vertex.parallelism)]

    def acknowledge(
        self,
        checkpoint_id: int,
        vertex_id: str = SOURCE.id,
        subtask: int = 0,
        *,
        files: tuple[StateFile, ...] = (),
        uploads: tuple[StateFile, ...] | None = None,
        metrics: SubtaskMetrics | None = None,
        job_id: str = JOB_ID,
        batch: int = 7,
        channels: tuple[Channel, ...] = (),
    ) -> bool:
        """Acknowledge a checkpoint after the shared files of `uploads` (default: `files`) were put into the pool."""
        self.storage.shared.update(file.location for file in (files if uploads is None else uploads) if file.shared)
        return self.coordinator.acknowledge(
            AcknowledgeCheckpoint(
                session_id=self.tasks.session_id,
                job_id=job_id,
                attempt=1,
                checkpoint_id=checkpoint_id,
                vertex_id=vertex_id,
                subtask=subtask,
                metrics=metrics or SubtaskMetrics(checkpointed_size=10, state_size=20),
                files=files,
                batches={"q": batch},
                channels=channels,
            )
        )

    def acknowledge_all(self, checkpoint_id: int, files: tuple[StateFile, ...] = ()) -> None:
        """Acknowledge the checkpoint for every subtask. The first acknowledgement contains `files`."""
        for number, (vertex_id, subtask) in enumerate(self.subtasks):
            self.acknowledge(checkpoint_id, vertex_id, subtask, files=files if number == 0 else ())

    def decline(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_DECLINED,
        cause: str = "",
        job_id: str = JOB_ID,
    ) -> None:
        self.coordinator.decline(DeclineCheckpoint(self.tasks.session_id, job_id, 1, checkpoint_id, reason.name, cause))

    def complete_one(self, files: tuple[StateFile, ...] = ()) -> CompletedCheckpoint:
        """Trigger a checkpoint, acknowledge it for all subtasks, and return it."""
        future = self.coordinator.trigger_checkpoint()
        self.acknowledge_all(self.triggered_ids[-1], files)
        return future.result(timeout=0)

    def shut_down(self, status: JobStatus, *, is_saved: bool = True) -> list[Exception | None]:
        outcomes: list[Exception | None] = []
        closed = self.coordinator.shutdown(status, is_saved=is_saved)
        closed.add_done_callback(lambda done: outcomes.append(done.result()))
        return outcomes


def reason_of(future: Future[CompletedCheckpoint]) -> CheckpointFailureReason | None:
    """Return why a checkpoint failed, or None if it has not failed (yet)."""
    if not future.done() or future.exception(timeout=0) is None:
        return None
    error = future.exception(timeout=0)
    assert isinstance(error, CheckpointException)
    return error.reason
