"""State handles in ZooKeeper (Flink's ZooKeeperStateHandleStore).

    <path>/<name>                persistent, the handle
    <path>/<name>/locks          persistent; missing = marked for deletion
    <path>/<name>/locks/<uuid>   ephemeral, one for each store instance that uses the handle

All three are made in one transaction, so a handle is never seen unlocked between its creation and its use.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Sequence

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.errors import (
    ConnectionUnavailable,
    HighAvailabilityError,
    LeadershipLost,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
)
from checkpointing.ha.zookeeper import (
    ANY_VERSION,
    Create,
    Delete,
    Fence,
    Operation,
    SetData,
    ZooKeeperConnection,
    unfenced,
)

MAX_HANDLE_BYTES = 1024


class ZooKeeperStateHandleStore:
    """`fence` names the node of this leader's term: writes are refused with LeadershipLost once it is gone."""

    durable = True

    def __init__(self, connection: ZooKeeperConnection, path: str, fence: Fence = unfenced) -> None:
        self._connection = connection
        self._path = path
        self._fence = fence
        self._lock_name = str(uuid.uuid4())
        connection.retrying(lambda: connection.ensure(path))

    def add_and_lock(self, name: str, handle: bytes) -> None:
        """One transaction, unless a leftover that is marked for deletion has the name."""
        _check_size(name, handle)
        node = self._node(name)
        creation = [Create(node, handle), Create(f"{node}/locks"), Create(self._lock(name), ephemeral=True)]
        try:
            self._commit_known(name, handle, creation)
        except NodeExists:
            if not self._connection.retrying(lambda: self._remove_if_marked(name)):
                raise
            self._commit_known(name, handle, creation)

    def replace(self, name: str, handle: bytes) -> None:
        _check_size(name, handle)
        if self._connection.retrying(lambda: self._connection.find(self._lock(name))) is None:
            raise NodeMissing(f"{self._node(name)} is not locked here")
        self._commit_known(name, handle, [SetData(self._node(name), handle, ANY_VERSION)])

    def get_and_lock(self, name: str) -> bytes:
        return self._connection.retrying(lambda: self._get_and_lock(name))

    def get_all_and_lock(self) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        for name in self.names():
            with contextlib.suppress(NodeMissing):  # removed, or marked for deletion, since it was listed
                found.append((name, self.get_and_lock(name)))
        return found

    def names(self) -> list[str]:
        def read() -> list[str]:
            self._connection.sync(self._path)
            return self._connection.children(self._path)

        return self._connection.retrying(read)

    def exists(self, name: str) -> bool:
        node = self._connection.retrying(lambda: self._connection.find(self._node(name)))
        return node is not None and node.children > 0

    def release(self, name: str) -> None:
        self._connection.retrying(lambda: self._release(name))

    def release_all(self) -> None:
        for name in self.names():
            self.release(name)

    def release_and_try_remove(self, name: str) -> bool:
        return self._connection.retrying(lambda: self._release_and_try_remove(name))

    def clear_entries(self) -> None:
        self._connection.retrying(lambda: self._connection.delete_tree(self._path, self._fence()))

    def _commit_known(self, name: str, handle: bytes, operations: Sequence[Operation]) -> None:
        """Commit; find out what became of a try whose answer was lost, else PossibleInconsistentState."""
        tried = False

        def commit() -> None:
            nonlocal tried
            try:
                self._connection.commit(operations, self._fence())
            except NodeExists:
                if not (tried and self._holds(name, handle)):
                    raise
            except ConnectionUnavailable:
                tried = True
                raise

        try:
            self._connection.retrying(commit)
        except NodeExists:
            raise
        except HighAvailabilityError as error:
            if tried:
                raise PossibleInconsistentState(
                    f"{self._node(name)} may or may not have been written: {error}"
                ) from error
            raise

    def _holds(self, name: str, handle: bytes) -> bool:
        """Whether the node is the one that an earlier try made; a lock that went with the session is made again."""
        try:
            if self._get_and_lock(name) == handle:
                return True
        except NodeMissing:
            return False
        self._release(name)
        return False

    def _get_and_lock(self, name: str) -> bytes:
        try:
            with contextlib.suppress(NodeExists):
                self._connection.commit([Create(self._lock(name), ephemeral=True)])
            return self._connection.get(self._node(name)).data
        except HighAvailabilityError:
            self._release(name)
            raise

    def _release(self, name: str) -> None:
        with contextlib.suppress(NodeMissing):
            self._connection.delete(self._lock(name))

    def _release_and_try_remove(self, name: str) -> bool:
        """Mostly one transaction: our lock was the only one."""
        node = self._node(name)
        try:
            self._connection.commit([Delete(self._lock(name)), Delete(f"{node}/locks"), Delete(node)], self._fence())
        except NodeMissing:
            return self._remove_if_unlocked(name)
        except NodeNotEmpty:
            self._release(name)
            return self._remove_if_unlocked(name)
        except LeadershipLost:
            self._release(name)
            raise
        return True

    def _remove_if_unlocked(self, name: str) -> bool:
        node = self._node(name)
        try:
            self._connection.commit([Delete(f"{node}/locks"), Delete(node)], self._fence())
        except NodeNotEmpty:
            return False
        except NodeMissing:
            self._remove_if_marked(name)
        return True

    def _remove_if_marked(self, name: str) -> bool:
        """False: it is there and not marked."""
        node = self._connection.find(self._node(name))
        if node is None:
            return True
        if node.children > 0:
            return False
        with contextlib.suppress(NodeMissing):
            self._connection.commit([Delete(self._node(name))], self._fence())
        return True

    def _node(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _lock(self, name: str) -> str:
        return f"{self._path}/{name}/locks/{self._lock_name}"


def _check_size(name: str, handle: bytes) -> None:
    if len(handle) > MAX_HANDLE_BYTES:
        raise ValueError(f"the handle {name} has {len(handle)} bytes; at most {MAX_HANDLE_BYTES} belong in ZooKeeper")
