"""State handles in ZooKeeper (Flink's ZooKeeperStateHandleStore).

    <path>/<name>                persistent, the handle
    <path>/<name>/locks          persistent; missing = marked for deletion
    <path>/<name>/locks/<uuid>   ephemeral, one for each store instance that uses the handle

All three are made in one transaction, so a handle is never seen unlocked between its creation and its use.

Other nodes below `path` were not written by Waymark. They are reported, skipped, and never removed.
"""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from collections.abc import Sequence
from functools import partial

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
    Exists,
    Fence,
    Operation,
    SetData,
    ZooKeeperConnection,
    unfenced,
)

MAX_HANDLE_BYTES = 1024
ANY_NAME = re.compile(r".+")

_LOCK_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

log = logging.getLogger(__name__)


class ZooKeeperStateHandleStore:
    """Handles in ZooKeeper. `fence` returns the node of this leader's term: without it, writes raise LeadershipLost.

    `own_names`: the pattern for names of this store's handles. The constructor does not contact the server.
    """

    durable = True

    def __init__(
        self,
        connection: ZooKeeperConnection,
        path: str,
        fence: Fence = unfenced,
        own_names: re.Pattern[str] = ANY_NAME,
    ) -> None:
        self._connection = connection
        self._path = path
        self._fence = fence
        self._own_names = own_names
        self._foreign: set[str] = set()
        self._lock_name = str(uuid.uuid4())

    def add_and_lock(self, name: str, handle: bytes) -> None:
        """Store and lock a handle in one transaction.

        The first handle needs more transactions. So does a name whose old handle is marked for deletion.
        """
        _check_size(name, handle)
        node = self._node(name)
        creation = [Create(node, handle), Create(f"{node}/locks"), Create(self._lock(name), ephemeral=True)]
        try:
            self._commit_known(name, handle, creation)
        except NodeMissing:
            self._connection.retrying(lambda: self._connection.ensure(self._path))
            self._commit_known(name, handle, creation)
        except NodeExists:
            if not self._connection.retrying(lambda: self._remove_if_marked(name)):
                raise
            self._commit_known(name, handle, creation)

    def replace(self, name: str, handle: bytes) -> None:
        _check_size(name, handle)
        try:
            self._commit_known(name, handle, [SetData(self._node(name), handle, ANY_VERSION), Exists(self._lock(name))])
        except NodeMissing as error:
            raise NodeMissing(f"{self._node(name)} does not exist, or this job manager holds no lock on it") from error

    def get_and_lock(self, name: str) -> bytes:
        return self._connection.retrying(lambda: self._get_and_lock(name))

    def get_all_and_lock(self) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        for name in self.names():
            with contextlib.suppress(NodeMissing):  # removed or marked for deletion after the listing
                found.append((name, self.get_and_lock(name)))
        return found

    def names(self) -> list[str]:
        def read() -> list[str]:
            self._connection.sync(self._path)
            return self._connection.children(self._path)

        return [name for name in self._connection.retrying(read) if self._is_own(name)]

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
        for name in self.names():
            self._connection.retrying(partial(self._clear, name))
        self._connection.retrying(lambda: self._delete_own(self._path))

    def _commit_known(self, name: str, handle: bytes, operations: Sequence[Operation]) -> None:
        """Commit. If the server does not answer, repeat the commit until the outcome is known.

        If the outcome stays unknown, raise PossibleInconsistentState.
        """
        tried = False

        def commit() -> None:
            nonlocal tried
            try:
                self._connection.commit(operations, self._fence())
            except (NodeExists, NodeMissing):
                if not (tried and self._holds(name, handle)):
                    raise
            except ConnectionUnavailable:
                tried = True
                raise

        try:
            self._connection.retrying(commit)
        except (NodeExists, NodeMissing):  # the server's answer shows the current nodes, whatever earlier tries did
            raise
        except HighAvailabilityError as error:
            if tried:
                raise PossibleInconsistentState(
                    f"{self._node(name)} may or may not have been written: {error}"
                ) from error
            raise

    def _holds(self, name: str, handle: bytes) -> bool:
        """Return whether an earlier try made the node. Restore a lock that ended with the session."""
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
                self._connection.commit([Create(self._lock(name), ephemeral=True)], self._fence())
            return self._connection.get(self._node(name)).data
        except HighAvailabilityError:
            self._release(name)
            raise

    def _release(self, name: str) -> None:
        with contextlib.suppress(NodeMissing):
            self._connection.delete(self._lock(name))

    def _release_and_try_remove(self, name: str) -> bool:
        """Remove a handle and its lock, mostly in one transaction because no other lock exists."""
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
            return self._remove_if_marked(name)
        return True

    def _remove_if_marked(self, name: str) -> bool:
        """Remove a handle that is marked for deletion.

        Return False if it is not marked or has foreign nodes below it.
        """
        node = self._connection.find(self._node(name))
        if node is None:
            return True
        if node.children > 0:
            return False
        with contextlib.suppress(NodeMissing):
            self._connection.commit([Delete(self._node(name))], self._fence())
        return True

    def _clear(self, name: str) -> None:
        """Remove a handle with all its locks. If interrupted anywhere, it leaves a handle that the next try finds."""
        locks = f"{self._node(name)}/locks"
        for lock in self._connection.children(locks):
            if _LOCK_NAME.fullmatch(lock):
                self._delete_own(f"{locks}/{lock}")
        self._delete_own(locks)
        self._delete_own(self._node(name))

    def _delete_own(self, path: str) -> None:
        try:
            self._connection.commit([Delete(path)], self._fence())
        except NodeMissing:
            return
        except NodeNotEmpty:
            log.warning("%s stays: below it lies what Waymark did not write", path)

    def _is_own(self, name: str) -> bool:
        is_own = self._own_names.fullmatch(name) is not None
        if not is_own and name not in self._foreign:
            self._foreign.add(name)
            log.warning("%s is skipped: Waymark did not write it", self._node(name))
        return is_own

    def _node(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _lock(self, name: str) -> str:
        return f"{self._path}/{name}/locks/{self._lock_name}"


def _check_size(name: str, handle: bytes) -> None:
    if len(handle) > MAX_HANDLE_BYTES:
        raise ValueError(f"the handle {name} has {len(handle)} bytes; at most {MAX_HANDLE_BYTES} belong in ZooKeeper")
