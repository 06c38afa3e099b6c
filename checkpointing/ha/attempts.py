"""The claim of a driver on its job, so that only one attempt of a job runs at a time.

With ZooKeeper the claim is `jobs/<job-id>/attempt`, an ephemeral node of the driver's own session. A job manager starts
the next attempt only after the node is gone. The driver notices a lost claim before that can happen, and stops itself.
A standalone job manager has no such claims: only the lease between driver and job manager (the heartbeat timeout, at
both ends) applies.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from checkpointing.clock import Clock
from checkpointing.ha.errors import (
    AttemptTaken,
    AttemptUnreadable,
    ConnectionUnavailable,
    HighAvailabilityError,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
)
from checkpointing.ha.session_lease import certain_until
from checkpointing.ha.zookeeper import (
    ConnectionState,
    Create,
    Delete,
    Fence,
    Node,
    Watch,
    ZooKeeperConnection,
    unfenced,
)

_RENEWALS_PER_TIMEOUT = 6
_LONGEST_WAIT_S = 1.0

log = logging.getLogger(__name__)


class HeldAttempt(Protocol):
    @property
    def attempt(self) -> int: ...

    @property
    def lost(self) -> bool:
        """Return True once the claim may be lost. Another attempt may start soon, so this one must stop."""
        ...

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on another thread, when the claim is lost or if it already is.

        After `release`, the callback is not called.
        """
        ...

    def release(self) -> None:
        """Release the claim, because the attempt has ended. The next attempt may start. May be called twice."""
        ...


class AttemptRegistry(Protocol):
    """The claims of attempts. All methods block, and raise ConnectionUnavailable if the server does not answer.

    They raise AttemptUnreadable while the node of the job's attempt contains something that no driver wrote.
    """

    @property
    def knows_all_machines(self) -> bool:
        """Return whether a job without a claim here has no driver on any machine."""
        ...

    def hold(self, job_id: str, attempt: int) -> HeldAttempt:
        """Claim the job.

        The driver calls it before anything else. Raise AttemptTaken if another attempt of the job is running.
        """
        ...

    def holder(self, job_id: str) -> int | None:
        """Return the running attempt, or None. The job manager calls it."""
        ...

    def wait_until_free(self, job_id: str, timeout_s: float) -> bool: ...

    def free(self, job_id: str, attempt: int) -> None:
        """Remove the claim of an attempt whose process the job manager saw end, so that nothing waits for its session.

        Raise LeadershipLost if another job manager may have taken over.
        """
        ...


class StandaloneHeldAttempt:
    lost = False

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Do nothing: a standalone claim is never lost, and the driver's lease ends it."""

    def release(self) -> None:
        """Do nothing, because nothing is claimed."""


class StandaloneAttemptRegistry:
    """A registry for a standalone job manager: it records nothing, because the lease alone decides."""

    knows_all_machines = False

    def hold(self, job_id: str, attempt: int) -> HeldAttempt:
        return StandaloneHeldAttempt(attempt)

    def holder(self, job_id: str) -> int | None:
        return None

    def wait_until_free(self, job_id: str, timeout_s: float) -> bool:
        return True

    def free(self, job_id: str, attempt: int) -> None:
        """Do nothing, because nothing is claimed."""


class ZooKeeperAttemptRegistry:
    """Claims in ZooKeeper. `fence` returns the node of this leader's term; a driver has none."""

    knows_all_machines = True

    def __init__(self, connection: ZooKeeperConnection, clock: Clock, fence: Fence = unfenced) -> None:
        self._connection = connection
        self._clock = clock
        self._fence = fence
        self._changed = threading.Event()

    def hold(self, job_id: str, attempt: int) -> HeldAttempt:
        path = _path(job_id)

        def create() -> ZooKeeperHeldAttempt:
            asked_at, session = self._clock.monotonic(), self._connection.session_id
            if session is None:
                raise ConnectionUnavailable("not connected")
            self._connection.ensure(path.rpartition("/")[0])
            try:
                self._connection.commit([Create(path, json.dumps({"attempt": attempt}).encode(), ephemeral=True)])
            except NodeExists:
                self._check_is_ours(job_id, attempt)
            return ZooKeeperHeldAttempt(self._connection, self._clock, path, attempt, session, asked_at)

        held = self._connection.retrying(create)
        held.watch_over()
        return held

    def holder(self, job_id: str) -> int | None:
        node = self._connection.retrying(lambda: self._find(job_id, None))
        return None if node is None else _attempt_of(job_id, node)

    def wait_until_free(self, job_id: str, timeout_s: float) -> bool:
        deadline = self._clock.monotonic() + timeout_s
        while True:
            self._changed.clear()
            node = self._connection.retrying(lambda: self._find(job_id, self._on_watch))
            if node is None:
                return True
            _attempt_of(job_id, node)
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                return False
            self._changed.wait(min(remaining, _LONGEST_WAIT_S))

    def free(self, job_id: str, attempt: int) -> None:
        def remove() -> None:
            node = self._find(job_id, None)
            if node is not None and _attempt_of(job_id, node) == attempt:
                # This write is fenced, so that a former leader does not delete the node of the next attempt.
                with contextlib.suppress(NodeMissing):
                    self._connection.commit([Delete(_path(job_id))], self._fence())

        self._connection.retrying(remove)

    def _find(self, job_id: str, watch: Watch | None) -> Node | None:
        self._connection.sync(_path(job_id))
        return self._connection.find(_path(job_id), watch)

    def _check_is_ours(self, job_id: str, attempt: int) -> None:
        """Raise AttemptTaken unless an earlier try of this same request created the node."""
        node = self._find(job_id, None)
        if node is None:
            raise ConnectionUnavailable(
                f"{_path(job_id)} was created by another request and then deleted"
            )  # the caller retries
        living = _attempt_of(job_id, node)
        if (node.owner_session, living) != (self._connection.session_id, attempt):
            raise AttemptTaken(job_id, living)

    def _on_watch(self, _event: object) -> None:
        self._changed.set()


class ZooKeeperHeldAttempt:
    """A claim in ZooKeeper, which a separate thread watches."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        clock: Clock,
        path: str,
        attempt: int,
        session: int,
        asked_at: float,
    ) -> None:
        self.attempt = attempt
        self._connection = connection
        self._clock = clock
        self._path = path
        self._session = session
        self._certain_until = certain_until(asked_at, connection.session_timeout_s)
        self._lost = False
        self._released = False
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"attempt-{attempt}", daemon=True)

    def watch_over(self) -> None:
        self._connection.add_listener(self._on_connection)
        self._thread.start()

    @property
    def lost(self) -> bool:
        return self._lost or (not self._released and self._clock.monotonic() >= self._certain_until)

    def on_lost(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if self._released:
                return
            self._callbacks.append(callback)
        if self._lost:
            self._call_back()

    def release(self) -> None:
        with self._lock:
            if self._released:
                return
            self._released = True
            self._callbacks.clear()
        self._end_thread()
        with contextlib.suppress(HighAvailabilityError):  # if removing the node fails, it ends with the session
            self._connection.retrying(self._remove_node)

    def _remove_node(self) -> None:
        node = self._connection.find(self._path)
        if node is None or node.owner_session != self._session:
            return
        with contextlib.suppress(NodeMissing):
            self._connection.delete(self._path)
        # If the job was cleaned up while its driver was still ending, this was the last node of the job.
        with contextlib.suppress(NodeMissing, NodeNotEmpty):
            self._connection.delete(self._path.rpartition("/")[0])

    def _end_thread(self) -> None:
        self._connection.remove_listener(self._on_connection)
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _on_connection(self, _state: ConnectionState) -> None:
        self._wake.set()

    def _run(self) -> None:
        while not self._released:
            self._wake.clear()
            if not self._is_still_claimed():
                self._lost = True
                self._call_back()
                return
            remaining = self._certain_until - self._clock.monotonic()
            self._wake.wait(min(self._connection.session_timeout_s / _RENEWALS_PER_TIMEOUT, max(0.0, remaining)))

    def _is_still_claimed(self) -> bool:
        """Return whether the claim is still held.

        If it cannot be read for any reason, it is held until its lease ends.
        """
        asked_at = self._clock.monotonic()
        try:
            if self._connection.state is ConnectionState.CONNECTED:
                if not self._confirmed():
                    return False
                self._certain_until = certain_until(asked_at, self._connection.session_timeout_s)
        except ConnectionUnavailable as error:
            log.info("the claim on attempt %d cannot be confirmed now: %s", self.attempt, error)
        except Exception:
            log.exception("the claim on attempt %d cannot be confirmed", self.attempt)
        return self._clock.monotonic() < self._certain_until

    def _confirmed(self) -> bool:
        try:
            self._connection.confirm(self._path)
        except NodeMissing:
            return False
        node = self._connection.find(self._path)
        return node is not None and node.owner_session == self._session

    def _call_back(self) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("attempt %d was lost, and what was to follow failed", self.attempt)


def _path(job_id: str) -> str:
    return f"jobs/{job_id}/attempt"


def _attempt_of(job_id: str, node: Node) -> int:
    """Return the attempt in a driver's node, which is ephemeral. A persistent node would block the job forever."""
    try:
        attempt = json.loads(node.data)["attempt"] if node.owner_session else None
    except (ValueError, KeyError, TypeError):
        attempt = None
    if not isinstance(attempt, int):
        raise AttemptUnreadable(
            f"{_path(job_id)} holds {node.data[:80]!r}, which no driver wrote. No attempt can start until it is "
            "deleted."
        )
    return attempt
