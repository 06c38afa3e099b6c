"""The coordinator: the time for acknowledgements, and the cost of a checkpoint in ZooKeeper.

Acknowledgements are timed in CPU seconds of this process, so that a busy machine does not change them. The ZooKeeper
figure is a ratio of wall-clock times, measured alternately in the same run. It compares adding a checkpoint and
subsuming the previous one with the minimum: a transaction that creates a handle with its lock, and one to delete it.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import statistics
import tempfile
import time
import tracemalloc
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kazoo.client import KazooClient

from bench.figures import Figure
from checkpointing.clock import SystemClock
from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.pending import JobIdentity
from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.ha.checkpoint_id_counter import StandaloneCheckpointIDCounter
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.ha.state_handles import InMemoryStateHandleStore
from checkpointing.ha.zookeeper import ZooKeeperConnection
from checkpointing.ha.zookeeper_state_handles import ZooKeeperStateHandleStore
from checkpointing.java import find_java
from checkpointing.jobs.coordinator_runner import CoordinatorRunner, CoordinatorSteps
from checkpointing.jobs.loop import Cancellable
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint, RetentionPolicy
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    CheckpointKind,
    JobManagerMessage,
    StateFile,
    SubtaskMetrics,
    TriggerCheckpoint,
    Vertex,
    VertexKind,
)
from dashboard.stack.ports import any_free
from dashboard.stack.process import running
from dashboard.stack.zookeeper import ZooKeeperServer

T = TypeVar("T")

JOB_ID = "0123456789abcdef0123456789abcdef"
SIZES = (1, 100, 10_000)
ACKNOWLEDGEMENTS = 60_000
# Create a few messages at a time, as the job manager reads them from a connection: they are still in CPU caches.
MESSAGES_AT_A_TIME = 100
ROUNDS = 5
TURNS = 400


def measure() -> list[Figure]:
    rounds = [{size: _seconds_per_acknowledgement(size) for size in SIZES} for _ in range(ROUNDS)]
    seconds = {size: statistics.median(found[size] for found in rounds) for size in SIZES}
    largest = max(SIZES)
    figures = [
        Figure("acknowledgements, by subtasks", 1 / seconds[size], "/s", goal=100_000, at_most=False, case=f"{size:,}")
        for size in SIZES
    ]
    figures.append(Figure("checkpoint of 1 subtask, without I/O", _seconds_per_checkpoint() * 1e6, "µs"))
    figures += [
        Figure("outstanding acknowledgement, by subtasks", _bytes_outstanding(size), "bytes", goal, case=f"{size:,}")
        for size, goal in ((100, 300), (largest, 300))
    ]
    # If the work grew with the number of subtasks, this would be 100×. The small rest comes from cache misses.
    growth = statistics.median(found[largest] / found[100] for found in rounds)
    figures.append(Figure(f"acknowledgement, {largest:,} subtasks against 100", growth, "×", goal=1.25))
    return figures + _zookeeper()


# --- acknowledgements -----------------------------------------------------------------------------------------------


def _seconds_per_acknowledgement(size: int) -> float:
    """Return the median over checkpoints of `size` subtasks, without the last acknowledgement, which completes one."""
    bench = _Coordinator(max(2, size))
    return statistics.median(_timed_checkpoint(bench) for _ in range(max(5, ACKNOWLEDGEMENTS // max(10, size))))


def _timed_checkpoint(bench: _Coordinator) -> float:
    """Return CPU seconds per acknowledgement, without the time to create messages and for garbage collection."""
    *timed, last = bench.begin()
    spent = 0.0
    for first in range(0, len(timed), MESSAGES_AT_A_TIME):
        messages = [bench.acknowledgement(index) for index in timed[first : first + MESSAGES_AT_A_TIME]]
        gc.disable()
        started = time.process_time()
        for message in messages:
            bench.coordinator.acknowledge(message)
        spent += time.process_time() - started
        gc.enable()
    bench.coordinator.acknowledge(bench.acknowledgement(last))
    return spent / len(timed)


def _seconds_per_checkpoint() -> float:
    bench = _Coordinator(1)
    samples = []
    for _ in range(ACKNOWLEDGEMENTS // 30):
        started = time.process_time()
        bench.complete()
        samples.append(time.process_time() - started)
    return statistics.median(samples)


def _bytes_outstanding(size: int) -> float:
    """Return the memory per subtask of a checkpoint without acknowledgements, including its statistics."""
    bench = _Coordinator(size)
    bench.complete()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    bench.coordinator.trigger_checkpoint()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / size


class _Coordinator:
    """A coordinator with one stateful operator. Its I/O is synchronous and in memory."""

    def __init__(self, parallelism: int) -> None:
        self._vertex = Vertex("b" * 32, "count", VertexKind.STATEFUL, parallelism, "q")
        self._tasks = _Tasks()
        store = HandleCompletedCheckpointStore(InMemoryStateHandleStore(), 1, _unused)
        coordinator = CheckpointCoordinator(
            JobIdentity(JOB_ID, "bench", "bench:bench"),
            self._tasks.session_id,
            CheckpointConfiguration(retention=RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS),
            SystemClock(),
            lambda: CheckpointPlan((self._vertex,), ready=True),
            history_size=1,
        )
        self.coordinator = CoordinatorRunner(
            coordinator,
            CoordinatorSteps(_Storage(), store, StandaloneCheckpointIDCounter()),
            io=_InlineIo(),
            timer=_Timer(),
            send=self._tasks.send,
            fail_job=lambda message, error: None,
            left_behind=lambda what, error: None,
        )

    def begin(self) -> list[int]:
        """Trigger a checkpoint, and return the subtasks that must acknowledge it, in random order."""
        self.coordinator.trigger_checkpoint()
        return random.Random(1).sample(range(self._vertex.parallelism), self._vertex.parallelism)

    def complete(self) -> None:
        for index in self.begin():
            self.coordinator.acknowledge(self.acknowledgement(index))

    def acknowledgement(self, index: int) -> AcknowledgeCheckpoint:
        """Return an acknowledgement with one private and one shared file, as in an incremental checkpoint."""
        checkpoint_id = self._tasks.checkpoint_id
        own = StateFile(f"state/0/{index}/1.delta", f"chk-{checkpoint_id}/{index}", 100, "a" * 64)
        pool = StateFile(f"state/0/{index}/1.sst", f"shared/{index}", 100, "b" * 64, shared=True)
        return AcknowledgeCheckpoint(
            session_id=self._tasks.session_id,
            job_id=JOB_ID,
            attempt=1,
            checkpoint_id=checkpoint_id,
            vertex_id=self._vertex.id,
            subtask=index,
            metrics=SubtaskMetrics(sync_duration=1, async_duration=2, checkpointed_size=100, state_size=200),
            files=(own, pool),
            batches={"q": 7},
        )


class _Tasks:
    session_id = "session-1"
    checkpoint_id = 0

    def send(self, message: JobManagerMessage) -> None:
        if isinstance(message, TriggerCheckpoint):
            self.checkpoint_id = message.checkpoint_id


class _Storage:
    def initialize_location(
        self, checkpoint_id: int, kind: CheckpointKind, target_directory: str | None
    ) -> CheckpointLocation:
        return CheckpointLocation(f"/checkpoints/chk-{checkpoint_id}", "/checkpoints/shared")

    def write_metadata(self, checkpoint: CompletedCheckpoint) -> int:
        return 1

    def discard_location(self, location: CheckpointLocation) -> None:
        pass

    def discard_claimed(self, location: str) -> None:
        pass

    def discard_shared(self, files: Sequence[StateFile]) -> None:
        pass

    def remove_empty_directories(self) -> None:
        pass


class _InlineIo:
    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], None], on_error: Callable[[Exception], None]
    ) -> None:
        on_done(work())


class _Timer:
    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        return _Never()


class _Never:
    def cancel(self) -> None:
        pass


def _unused(location: str) -> CompletedCheckpoint:
    raise AssertionError(f"the benchmark should not read a stored checkpoint: {location}")


# --- ZooKeeper ------------------------------------------------------------------------------------------------------


def _zookeeper() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="waymark-bench-") as name:
        directory = Path(name)
        java = find_java(os.environ, directory / "java").home
        server = ZooKeeperServer(directory / "zookeeper", any_free(), java)
        with running(server, log=directory / "zookeeper.log"):
            return _add_and_subsume(server.address)


def _add_and_subsume(hosts: str) -> list[Figure]:
    connection = ZooKeeperConnection(hosts, "/bench", session_timeout_s=10)
    connection.start()
    raw = _RawHandles(hosts)
    try:
        connection.ensure("leader")
        handles = ZooKeeperStateHandleStore(connection, "checkpoints", lambda: "leader")
        store = HandleCompletedCheckpointStore(handles, 1, _unused)
        ids = itertools.count(1)
        ours, least = [], []
        for _ in range(TURNS):
            ours.append(_timed(lambda: store.add_checkpoint(_checkpoint(next(ids)))))
            least.append(_timed(raw.add_and_subsume))
    finally:
        raw.close()
        connection.close()
    warm = slice(TURNS // 10, None)
    mine, minimum = statistics.median(ours[warm]), statistics.median(least[warm])
    return [
        Figure("adding a checkpoint and subsuming another in ZooKeeper", mine * 1000, "ms"),
        Figure("its two transactions, raw kazoo", minimum * 1000, "ms"),
        Figure("checkpoint in ZooKeeper against raw kazoo", mine / minimum, "×", goal=1.3),
    ]


class _RawHandles:
    """The minimum with kazoo only: one transaction creates a handle and its lock, one deletes the previous handle."""

    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts)
        self._client.start()
        self._client.ensure_path("/raw/leader")
        self._client.ensure_path("/raw/checkpoints")
        self._lock = str(uuid.uuid4())
        self._newest = 0
        self._data = b"x" * 120

    def add_and_subsume(self) -> None:
        self._newest += 1
        node = self._node(self._newest)
        added = self._client.transaction()
        added.check("/raw/leader", -1)
        added.create(node, self._data)
        added.create(f"{node}/locks")
        added.create(f"{node}/locks/{self._lock}", ephemeral=True)
        _checked(added.commit())
        if self._newest > 1:
            old = self._node(self._newest - 1)
            removed = self._client.transaction()
            removed.check("/raw/leader", -1)
            removed.delete(f"{old}/locks/{self._lock}")
            removed.delete(f"{old}/locks")
            removed.delete(old)
            _checked(removed.commit())

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _node(self, number: int) -> str:
        return f"/raw/checkpoints/{number:019d}"


def _checked(results: Sequence[object]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise result


def _checkpoint(checkpoint_id: int) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        job_id=JOB_ID,
        job_name="bench",
        entry_class="bench:bench",
        checkpoint_id=checkpoint_id,
        properties=CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION),
        trigger_timestamp=1,
        completion_timestamp=2,
        operators=(),
        batches={},
        location=f"/checkpoints/{JOB_ID}/chk-{checkpoint_id}",
        shared_location=None,
    )


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
