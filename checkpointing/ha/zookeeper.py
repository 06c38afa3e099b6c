"""The only access to ZooKeeper.

Only two other modules of this package import kazoo: `zookeeper_access` (log-in and TLS) and `kazoo_internals` (kazoo's
private API).

Paths are relative to the root of the connection. Every operation is tried once, waits at most the operation timeout,
and raises the errors in `errors`. `retrying` repeats an operation that may safely be repeated.

Threads: all methods may be called from any thread except kazoo's own. Listeners run on kazoo's connection thread and
watches on its callback thread. Both must return at once and must not call the connection.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from checkpointing.clock import Clock, SystemClock
from checkpointing.ha.errors import (
    ConnectionUnavailable,
    HighAvailabilityError,
    LeadershipLost,
    NodeChanged,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    ZooKeeperRefusal,
)
from checkpointing.ha.kazoo_internals import LogIn, intercept_log_in
from checkpointing.ha.zookeeper_access import OPEN, ZooKeeperAccess, make_client

T = TypeVar("T")

ANY_VERSION = -1

log = logging.getLogger(__name__)


class ConnectionState(Enum):
    CONNECTED = "CONNECTED"
    SUSPENDED = "SUSPENDED"
    """No connection. The session, and with it its ephemeral nodes, may still exist."""
    LOST = "LOST"
    """The session is over, and its ephemeral nodes are gone."""


@dataclass(frozen=True)
class Node:
    data: bytes
    version: int
    owner_session: int
    """The session of an ephemeral node, or 0 for a persistent one."""
    children: int


@dataclass(frozen=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True)
class SetData:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True)
class Exists:
    """A check without a change: the transaction fails with NodeMissing if the node does not exist."""

    path: str


Operation = Create | SetData | Delete | Exists
Fence = Callable[[], str | None]
"""Returns the node that must exist for a write, or None."""
StateListener = Callable[[ConnectionState], None]
Watch = Callable[[object], None]
"""Called once. Pass the same bound method every time: a watch that is set again before it fired is still one."""

# After these errors the server has certainly changed nothing, as in Flink's ZooKeeperStateHandleStore.
_REFUSALS: dict[type[Exception], type[ZooKeeperRefusal]] = {
    kazoo_errors.NoNodeError: NodeMissing,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: NodeChanged,
    kazoo_errors.NotEmptyError: NodeNotEmpty,
    kazoo_errors.BadArgumentsError: ZooKeeperRefusal,
    kazoo_errors.NoAuthError: ZooKeeperRefusal,
    kazoo_errors.AuthFailedError: ZooKeeperRefusal,
    kazoo_errors.InvalidACLError: ZooKeeperRefusal,
    kazoo_errors.SessionMovedError: ZooKeeperRefusal,
    kazoo_errors.NotReadOnlyCallError: ZooKeeperRefusal,
}


def unfenced() -> None:
    """Return no node: the Fence of writes that any session may make."""


def translated(error: Exception, what: str) -> HighAvailabilityError:
    """Return kazoo's error as a HighAvailabilityError.

    An error that does not prove that nothing happened is ConnectionUnavailable.
    """
    kind: type[HighAvailabilityError] = _REFUSALS.get(type(error), ConnectionUnavailable)
    return kind(f"{what}: {type(error).__name__} {error}".rstrip())


@contextlib.contextmanager
def _errors_of(what: str) -> Iterator[None]:
    try:
        yield
    except (kazoo_errors.KazooException, KazooTimeoutError) as error:
        raise translated(error, what) from error


class ZooKeeperConnection:
    """One session. After it has expired, the next one is opened automatically; listeners see LOST, then CONNECTED."""

    def __init__(
        self,
        hosts: str,
        root: str,
        *,
        session_timeout_s: float,
        operation_timeout_s: float | None = None,
        clock: Clock | None = None,
        access: ZooKeeperAccess = OPEN,
    ) -> None:
        servers, _, chroot = hosts.partition("/")
        self._root = "/" + "/".join(part for part in (chroot + "/" + root).split("/") if part)
        self._clock = clock or SystemClock()
        self._operation_timeout_s = operation_timeout_s or session_timeout_s
        self._retry_for_s = max(self._operation_timeout_s, session_timeout_s)
        self._session_timeout_s = session_timeout_s
        self._changed = threading.Condition()
        self._state = ConnectionState.LOST
        self._listeners: list[StateListener] = []
        self._closed = False
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=1.0)
        self._access = access
        self._client = make_client(servers, access, timeout=session_timeout_s, connection_retry=retry)
        self._client.add_listener(self._on_state)
        self._remember_negotiated_timeout()

    def start(self, timeout_s: float = 15.0) -> None:
        """Connect. Raise ConnectionUnavailable if no server answers in time."""
        try:
            self._client.start(timeout=timeout_s)
            self.retrying(lambda: self.ensure(""))
        except KazooTimeoutError as error:
            self._closed = True
            raise ConnectionUnavailable(
                f"no ZooKeeper server of {self._client.hosts} answered in {timeout_s:g} s"
            ) from error
        except HighAvailabilityError:
            self.close()
            raise

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes at once. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._client.stop()
        self._client.close()

    @property
    def state(self) -> ConnectionState:
        return self._state

    @property
    def session_id(self) -> int | None:
        """Return the ID of the live session, or None while not connected."""
        identity = self._client.client_id
        return identity[0] if identity else None

    @property
    def session_timeout_s(self) -> float:
        """Return the timeout that the server granted, which may differ from the requested one."""
        return self._session_timeout_s

    def add_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: StateListener) -> None:
        self._listeners.remove(listener)

    def wait_until_connected(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._state is ConnectionState.CONNECTED or self._closed, max(0.0, timeout_s)
            ) and not (self._closed or timeout_s <= 0)

    def retrying(self, work: Callable[[], T]) -> T:
        """Call `work`, and repeat it while the connection fails, for about a session timeout.

        `work` must be repeatable.
        """
        deadline = self._clock.monotonic() + self._retry_for_s
        while True:
            try:
                return work()
            except ConnectionUnavailable:
                self._pause()
                if not self.wait_until_connected(deadline - self._clock.monotonic()):
                    raise

    # Reading

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return the node. Raise NodeMissing without setting a watch; use `find` for a node that may appear later."""
        with _errors_of(f"get {path}"):
            data, stat = self._await(self._client.get_async(self._full(path), watch))
        return Node(data, stat.version, stat.ephemeralOwner, stat.numChildren)

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        """Return the node, or None.

        `watch` fires once if it is created, changed or removed, or the connection breaks.
        """
        with _errors_of(f"find {path}"):
            stat = self._await(self._client.exists_async(self._full(path), watch))
        if stat is None:
            return None
        try:
            return self.get(path)
        except NodeMissing:
            return None

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the sorted names of the node's children, none for a missing node."""
        try:
            with _errors_of(f"children of {path}"):
                return sorted(self._await(self._client.get_children_async(self._full(path), watch)))
        except NodeMissing:
            return []

    def is_ours(self, path: str) -> bool:
        """Return whether only this connection's user can change `path` and the nodes above it, up to Waymark's root.

        Any user may write another user's name into the ACL of a new node, but can create one only below an open node.
        Always true for a connection without a name.
        """
        if not self._access.has_name:
            return True
        parts = path.split("/")
        prefixes = ["/".join(parts[:length]) for length in range(len(parts) + 1)]
        with _errors_of(f"ACLs of {path}"):
            pending = [self._client.get_acls_async(self._full(prefix)) for prefix in prefixes]
            return all(self._access.owns(self._await(each)[0]) for each in pending)

    def sync(self, path: str) -> None:
        """Make later reads see everything that was committed before."""
        with _errors_of(f"sync {path}"):
            self._await(self._client.sync_async(self._full(path)))

    # Writing

    def ensure(self, path: str) -> None:
        with _errors_of(f"ensure {path}"):
            self._await(self._client.ensure_path_async(self._full(path)))

    def protect(self) -> None:
        """Restrict nodes that were created without a name, such as by an earlier version, to this connection's user."""
        if self._access.has_name:
            self._protect("")

    def _protect(self, path: str) -> None:
        full = self._full(path)
        try:
            with _errors_of(f"ACL of {full}"):
                acls, _ = self._await(self._client.get_acls_async(full))
                if not self._access.owns(acls):
                    self._await(self._client.set_acls_async(full, CREATOR_ALL_ACL))
        except NodeMissing:  # the ephemeral node was deleted because its session has ended
            return
        for name in self.children(path):
            self._protect(f"{path}/{name}".strip("/"))

    def create_sequential(self, path: str, data: bytes = b"") -> str:
        """Create an ephemeral node whose name ends in ten ascending digits. Return the name."""
        with _errors_of(f"create {path}"):
            made = self._await(self._client.create_async(self._full(path), data, ephemeral=True, sequence=True))
        return str(made).rpartition("/")[2]

    def delete(self, path: str) -> None:
        with _errors_of(f"delete {path}"):
            self._await(self._client.delete_async(self._full(path)))

    def commit(self, operations: Sequence[Operation], fence: str | None = None) -> None:
        """Perform all of `operations` or none, and only while the node `fence` exists.

        Otherwise raise LeadershipLost.
        """
        transaction = self._client.transaction()
        if fence is not None:
            transaction.check(self._full(fence), ANY_VERSION)
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral):
                    transaction.create(self._full(path), data, ephemeral=ephemeral)
                case SetData(path, data, version):
                    transaction.set_data(self._full(path), data, version)
                case Exists(path):
                    transaction.check(self._full(path), ANY_VERSION)
                case Delete(path, version):
                    transaction.delete(self._full(path), version)
        what = f"transaction on {operations[0].path}"
        with _errors_of(what):
            results = self._await(transaction.commit_async())
        if fence is not None and isinstance(results[0], kazoo_errors.NoNodeError):
            raise LeadershipLost(f"{what}: {fence} no longer exists, so another job manager may be the leader")
        for result in results:
            if isinstance(result, Exception) and not isinstance(
                result, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency
            ):
                raise translated(result, what) from result

    def confirm(self, path: str) -> None:
        """Let the quorum confirm that the node exists and that this session is alive.

        Raise NodeMissing if it does not exist.

        The transaction checks and changes nothing. Unlike a read, it cannot be answered by a server that was cut off
        from the others.
        """
        transaction = self._client.transaction()
        transaction.check(self._full(path), ANY_VERSION)
        with _errors_of(f"confirm {path}"):
            [result] = self._await(transaction.commit_async())
            if isinstance(result, kazoo_errors.KazooException):
                raise result

    def _pause(self) -> None:
        # A broken connection fails its requests shortly before its state changes. Do not loop without a pause in
        # between.
        with self._changed:
            self._changed.wait(0.05)

    def _full(self, path: str) -> str:
        return (f"{self._root}/{path}" if path else self._root).replace("//", "/")

    def _await(self, pending: Any) -> Any:
        return pending.get(block=True, timeout=self._operation_timeout_s)

    def _on_state(self, state: str) -> None:
        with self._changed:
            self._state = {
                KazooState.CONNECTED: ConnectionState.CONNECTED,
                KazooState.SUSPENDED: ConnectionState.SUSPENDED,
            }.get(state, ConnectionState.LOST)
            self._changed.notify_all()
        for listener in list(self._listeners):
            listener(self._state)

    def _remember_negotiated_timeout(self) -> None:
        # kazoo does not publish the timeout that the server granted, but a lease must not be longer than the session.
        def log_in_and_remember(log_in: LogIn) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = log_in()
            self._session_timeout_s = connect_timeout_ms * len(self._client.hosts) / 1000
            return read_timeout_ms, connect_timeout_ms

        intercept_log_in(self._client, log_in_and_remember)
