"""Ascending checkpoint IDs (Flink's StandaloneCheckpointIDCounter and ZooKeeperCheckpointIDCounter)."""

from __future__ import annotations

import contextlib
import struct
import threading
from typing import Protocol

from checkpointing.ha.errors import (
    ConnectionUnavailable,
    CounterOverflow,
    CounterUnavailable,
    CounterUnreadable,
    LeadershipLost,
    NodeChanged,
    NodeExists,
    NodeMissing,
)
from checkpointing.ha.zookeeper import (
    ConnectionState,
    Create,
    Delete,
    Fence,
    Node,
    SetData,
    ZooKeeperConnection,
    unfenced,
)
from checkpointing.model.status import JobStatus

INITIAL_ID = 1
MAX_ID = 2**31 - 1

_INT = struct.Struct(">i")


class CheckpointIDCounter(Protocol):
    """Ascending checkpoint IDs of one job. All methods block."""

    def get_and_increment(self) -> int: ...

    def get(self) -> int: ...

    def set_count(self, value: int) -> None: ...

    def shutdown(self, status: JobStatus) -> None: ...


class StandaloneCheckpointIDCounter:
    """A counter in memory: 1, 2, … It ends with its process."""

    def __init__(self) -> None:
        self._next = INITIAL_ID
        self._lock = threading.Lock()

    def get_and_increment(self) -> int:
        with self._lock:
            self._next += 1
            return self._next - 1

    def get(self) -> int:
        return self._next

    def set_count(self, value: int) -> None:
        with self._lock:
            self._next = value

    def shutdown(self, status: JobStatus) -> None:
        """Do nothing, because nothing outlives the process."""


class ZooKeeperCheckpointIDCounter:
    """A counter in ZooKeeper. The node contains the *next* ID: four bytes, big-endian, as in Curator's SharedCount.

    Every change is a compare-and-set on the node's version, so no ID is given twice, even with several callers. IDs may
    be skipped. CounterUnavailable is raised while the connection is suspended or lost, and if the outcome of a change
    is unknown. CounterUnreadable is raised if the node contains anything else; nothing is overwritten then.
    """

    def __init__(self, connection: ZooKeeperConnection, path: str, fence: Fence = unfenced) -> None:
        self._connection = connection
        self._path = path
        self._fence = fence

    def get_and_increment(self) -> int:
        while True:
            current, version = self._read()
            if current >= MAX_ID:
                raise CounterOverflow(f"the checkpoint counter has reached {MAX_ID}, the largest id it can keep")
            if self._changed(current + 1, version):
                return current

    def get(self) -> int:
        return self._read()[0]

    def set_count(self, value: int) -> None:
        if not 0 <= value <= MAX_ID:
            raise ValueError(f"a checkpoint id lies between 0 and {MAX_ID}, not {value}")
        while not self._changed(value, self._read()[1]):
            pass

    def shutdown(self, status: JobStatus) -> None:
        """Remove the node if the status is globally terminal, else keep it.

        A missing node is not an error; retry after an error.
        """
        if status.globally_terminal:
            with contextlib.suppress(NodeMissing):
                self._connection.retrying(lambda: self._connection.commit([Delete(self._path)], self._fence()))

    def _read(self) -> tuple[int, int]:
        if self._connection.state is not ConnectionState.CONNECTED:
            raise CounterUnavailable(f"no checkpoint id: the connection is {self._connection.state.value}")
        try:
            node = self._node()
        except (ConnectionUnavailable, LeadershipLost) as error:
            raise CounterUnavailable(f"no checkpoint id: {error}") from error
        return self._value_of(node), node.version

    def _value_of(self, node: Node) -> int:
        value = _INT.unpack(node.data)[0] if len(node.data) == _INT.size else -1
        if value < 0:
            raise CounterUnreadable(
                f"no checkpoint id: {self._path} holds {node.data[:80]!r}, not the four bytes of a counter"
            )
        return int(value)

    def _node(self) -> Node:
        self._connection.sync(self._path)
        try:
            return self._connection.get(self._path)
        except NodeMissing:
            self._connection.ensure(self._path.rpartition("/")[0])
            with contextlib.suppress(NodeExists):
                self._connection.commit([Create(self._path, _INT.pack(INITIAL_ID))], self._fence())
            return self._connection.get(self._path)

    def _changed(self, value: int, version: int) -> bool:
        """Write the value. Return False if another client was faster."""
        try:
            self._connection.commit([SetData(self._path, _INT.pack(value), version)], self._fence())
        except (NodeChanged, NodeMissing):
            return False
        except (ConnectionUnavailable, LeadershipLost) as error:
            raise CounterUnavailable(f"no checkpoint id: {error}") from error
        return True
