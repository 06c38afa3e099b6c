"""Fixtures for real ZooKeeper connections, and ways to break them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from kazoo.client import KazooClient

from checkpointing.ha.zookeeper import ZooKeeperConnection
from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import CheckpointKind
from checkpointing.storage.errors import MetadataMissing
from tests.tcp_proxy import TcpProxy
from tests.zookeeper_ensemble import ZooKeeperEnsemble

JOB_ID = "0123456789abcdef0123456789abcdef"
SESSION_TIMEOUT_S = 10.0


class Connect(Protocol):
    def __call__(
        self, hosts: str | None = None, session_timeout_s: float = ..., operation_timeout_s: float | None = None
    ) -> ZooKeeperConnection: ...


@pytest.fixture
def root() -> str:
    return f"/test-{uuid.uuid4().hex}"


@pytest.fixture
def connect(zookeeper_hosts: str, root: str) -> Iterator[Connect]:
    """Yield a function that starts connections under the test's own root. They are closed after the test."""
    opened: list[ZooKeeperConnection] = []

    def open_connection(
        hosts: str | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        operation_timeout_s: float | None = None,
    ) -> ZooKeeperConnection:
        connection = ZooKeeperConnection(
            hosts or zookeeper_hosts, root, session_timeout_s=session_timeout_s, operation_timeout_s=operation_timeout_s
        )
        connection.start()
        opened.append(connection)
        return connection

    yield open_connection
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(connect: Connect) -> ZooKeeperConnection:
    return connect()


@pytest.fixture
def proxy(zookeeper_hosts: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(zookeeper_hosts)
    yield proxy
    proxy.close()


@pytest.fixture
def expire_session(zookeeper_hosts: str) -> Callable[[ZooKeeperConnection], None]:
    """Return a function that ends a connection's session at the server, as after its timeout."""

    def expire(connection: ZooKeeperConnection) -> None:
        identity = connection._client.client_id
        twin = KazooClient(hosts=zookeeper_hosts, client_id=identity)
        twin.start()
        twin.stop()
        twin.close()

    return expire


@pytest.fixture
def make_ensemble(tmp_path: Path, java_home: Path) -> Iterator[Callable[[int], ZooKeeperEnsemble]]:
    started: list[ZooKeeperEnsemble] = []

    def make(count: int) -> ZooKeeperEnsemble:
        ensemble = ZooKeeperEnsemble(tmp_path / "zookeeper", java_home, count)
        started.append(ensemble)
        ensemble.start()
        return ensemble

    yield make
    for ensemble in started:
        ensemble.stop()


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout_s: float = ...) -> None: ...


@pytest.fixture
def eventually() -> Eventually:
    def wait(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.01)

    return wait


class CheckpointFiles:
    """Checkpoints by location, instead of a storage. `unreadable` ones are missing; the first `failures` reads fail."""

    def __init__(self) -> None:
        self.unreadable: set[str] = set()
        self.failures = 0
        self._by_location: dict[str, CompletedCheckpoint] = {}

    def completed(self, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> CompletedCheckpoint:
        checkpoint = CompletedCheckpoint(
            job_id=JOB_ID,
            job_name="wordcount",
            entry_class="wordcount:main",
            checkpoint_id=checkpoint_id,
            properties=CheckpointProperties(kind, RetentionPolicy.RETAIN_ON_CANCELLATION),
            trigger_timestamp=1_800_000_000_000 + checkpoint_id,
            completion_timestamp=1_800_000_000_500 + checkpoint_id,
            operators=(),
            batches={"query": checkpoint_id},
            location=f"/checkpoints/{JOB_ID}/chk-{checkpoint_id}",
            shared_location=f"/checkpoints/{JOB_ID}/shared",
        )
        self._by_location[checkpoint.location] = checkpoint
        return checkpoint

    def load(self, location: str) -> CompletedCheckpoint:
        if self.failures:
            self.failures -= 1
            raise OSError(f"{location}: the storage does not answer")
        if location in self.unreadable:
            raise MetadataMissing(location)
        return self._by_location[location]


@pytest.fixture
def files() -> CheckpointFiles:
    return CheckpointFiles()
