"""Leader election on ephemeral sequential nodes: the lowest leads, and each other one watches the one before it.

    leader/latch/_c_<uuid>-latch-<10 digits>     one for each contender; a new one for every term
    leader/rest_server/connection_info           ephemeral, published by the leader

A term ends, and `has_leadership` becomes false, at once when the connection is suspended. It also ends on the monotonic
clock when the quorum has not confirmed it for most of a session timeout (`session_lease`), so before another contender
can lead. After a term the contender's node is removed and a new one is made. So a write that is fenced with the old
node can never succeed.

A contender that cannot lead never keeps the others from leading. When it refuses its term, the election removes its
node at once and joins again after a pause, behind all others. When the election itself is broken, it makes the
contender end the process (decision 123).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import threading
import uuid
from collections.abc import Callable, Sequence

from checkpointing.clock import Clock
from checkpointing.ha.errors import (
    ConnectionUnavailable,
    HighAvailabilityError,
    LeadershipLost,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
)
from checkpointing.ha.leadership import ElectionClosed, LeaderContender, LeaderInformation
from checkpointing.ha.session_lease import certain_until
from checkpointing.ha.zookeeper import ConnectionState, Create, Delete, Operation, ZooKeeperConnection

LATCH = "leader/latch"
CONNECTION_INFO = "leader/rest_server/connection_info"

_RENEWALS_PER_TIMEOUT = 4
_REST_IN_TIMEOUTS = 1.0
_LATCH_NAME = re.compile(r"_c_.+-latch-(\d{10})")

log = logging.getLogger(__name__)


class ZooKeeperLeaderElection:
    """An election with two threads: one takes part in the election, one calls the contender."""

    def __init__(self, connection: ZooKeeperConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._id = str(uuid.uuid4())
        self._lock = threading.Lock()  # held for the fields below only, never during I/O or a callback
        self._latch: str | None = None
        self._session_id: str | None = None
        self._certain_until = 0.0
        self._rests_until = float("-inf")
        self._information: LeaderInformation | None = None
        self._closed = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)
        self._notifier: _Notifier | None = None

    def start(self, contender: LeaderContender) -> None:
        with self._lock:
            if self._notifier is not None or self._closed:
                raise ElectionClosed("the election was already started or closed; it cannot be started again")
            self._notifier = _Notifier(contender, self.has_leadership, self._resign)
        self._connection.add_listener(self._on_connection)
        self._thread.start()

    def confirm_leadership(self, session_id: str, address: str) -> bool:
        """Publish the leader's address.

        If the server does not answer now, it is published as soon as the server answers.
        """
        with self._lock:
            if not self._leads(session_id):
                return False
            self._information = LeaderInformation(address, session_id)
        try:
            self._publish()
        except LeadershipLost:
            return False
        except ConnectionUnavailable:
            self._wake.set()
        return self.has_leadership(session_id)

    def has_leadership(self, session_id: str) -> bool:
        with self._lock:
            return self._leads(session_id)

    @property
    def fence(self) -> str | None:
        with self._lock:
            if self._notifier is None:
                return None
            if self._session_id is None or not self._leads(self._session_id):
                raise LeadershipLost("this job manager is not the leader")
            return f"{LATCH}/{self._latch}"

    def confirm_term(self, session_id: str) -> None:
        if self.has_leadership(session_id):
            fence = self.fence
            try:
                self._connection.retrying(lambda: self._connection.confirm(str(fence)))
            except NodeMissing as error:
                raise LeadershipLost(f"{fence} no longer exists: another job manager may be the leader") from error
        if not self.has_leadership(session_id):
            raise LeadershipLost(f"the term of session {session_id} is over")

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            started = self._notifier is not None
        if not started:
            return
        self._connection.remove_listener(self._on_connection)
        self._end_term("the election was closed")
        self._wake.set()
        self._thread.join()
        with contextlib.suppress(HighAvailabilityError):  # if removing the nodes fails, they end with the session
            if self._connection.state is ConnectionState.CONNECTED:
                self._withdraw()
        if self._notifier is not None:
            self._notifier.close()

    def _leads(self, session_id: str) -> bool:
        return session_id == self._session_id and self._clock.monotonic() < self._certain_until

    def _on_connection(self, state: ConnectionState) -> None:
        if state is not ConnectionState.CONNECTED:
            self._end_term(f"the connection to ZooKeeper is {state.value}")
        self._wake.set()

    def _on_watch(self, _event: object) -> None:
        self._wake.set()

    def _run(self) -> None:
        try:
            self._contend_until_closed()
        except Exception as error:
            # If this thread ended, its node would keep all others from leading for as long as the session is alive.
            log.exception("the leader election failed")
            self._end_term(f"the election failed: {error!r}")
            if self._notifier is not None:
                self._notifier.contender.on_fatal_error(error)

    def _contend_until_closed(self) -> None:
        while not self._closed:
            self._wake.clear()
            try:
                if self._connection.state is ConnectionState.CONNECTED:
                    self._contend()
            except (ConnectionUnavailable, LeadershipLost) as error:
                log.info("leader election: %s", error)
            except NodeMissing:
                self._end_term("its node in the election is gone")
                self._wake.set()
            except HighAvailabilityError as error:
                self._end_term(str(error))
                self._report(error)
            self._end_uncertain_term()
            self._wake.wait(self._connection.session_timeout_s / _RENEWALS_PER_TIMEOUT)

    def _contend(self) -> None:
        with self._lock:
            latch = self._latch
        if latch is None:
            self._withdraw()
            if self._clock.monotonic() < self._rests_until:
                return
            latch = self._join()
        latches = sorted(filter(_LATCH_NAME.fullmatch, self._connection.children(LATCH)), key=_sequence)
        if latch not in latches or self._connection.find(f"{LATCH}/{latch}", self._on_watch) is None:
            raise NodeMissing(latch)
        if not self._watch_predecessor(latches[: latches.index(latch)]):
            requested_at = self._clock.monotonic()
            self._connection.confirm(f"{LATCH}/{latch}")
            self._lead(latch, requested_at)

    def _watch_predecessor(self, latches: Sequence[str]) -> bool:
        """Watch the contender before this one, and return whether there is one.

        A persistent node is not a contender, and stays.
        """
        for latch in reversed(latches):
            node = self._connection.find(f"{LATCH}/{latch}", self._on_watch)
            if node is None:
                self._wake.set()  # check again: the contender before it may be gone, too
                return True
            if node.owner_session:
                return True
            log.warning("%s/%s takes no part in the election: Waymark did not write it", LATCH, latch)
        return False

    def _join(self) -> str:
        self._connection.ensure(LATCH)
        latch = self._connection.create_sequential(f"{LATCH}/_c_{self._id}-latch-")
        with self._lock:
            self._latch = latch
        return latch

    def _withdraw(self) -> None:
        """Remove all nodes of this contender, including one whose creation was not answered."""
        published = self._connection.find(CONNECTION_INFO)
        if published is not None and published.owner_session == self._connection.session_id:
            with contextlib.suppress(NodeMissing):
                self._connection.delete(CONNECTION_INFO)
        for name in self._connection.children(LATCH):
            if name.startswith(f"_c_{self._id}-"):
                with contextlib.suppress(NodeMissing):
                    self._connection.delete(f"{LATCH}/{name}")

    def _lead(self, latch: str, requested_at: float) -> None:
        with self._lock:
            if self._latch != latch or self._closed:  # the connection broke after the request
                return
            # Callers may have seen the uncertain term as over, so it must end.
            over = self._session_id is not None and not self._leads(self._session_id)
            granted = self._session_id is None
            if granted:
                self._session_id = str(uuid.uuid4())
                session_id = self._session_id
            if not over:
                self._certain_until = certain_until(requested_at, self._connection.session_timeout_s)
        if over:
            self._end_term("ZooKeeper has confirmed it too late")
            self._wake.set()
            return
        if granted:
            log.info("leadership granted, session %s", session_id)
            if self._notifier is not None:
                self._notifier.grant(session_id)
        self._publish()

    def _publish(self) -> None:
        """Publish the information that this leader confirmed, if something else is published."""
        with self._lock:
            information, latch = self._information, self._latch
        if information is None or latch is None:
            return
        self._connection.ensure(CONNECTION_INFO.rpartition("/")[0])
        published = self._connection.find(CONNECTION_INFO, self._on_watch)
        wanted = information.encode()
        if published is not None and (published.data, published.owner_session) == (wanted, self._connection.session_id):
            return
        operations: list[Operation] = [] if published is None else [Delete(CONNECTION_INFO)]
        operations.append(Create(CONNECTION_INFO, wanted, ephemeral=True))
        try:
            self._connection.commit(operations, fence=f"{LATCH}/{latch}")
        except (NodeExists, NodeMissing):  # another process changed the node after it was read
            self._wake.set()
        except NodeNotEmpty as error:  # nodes below it must not be removed; the next renewal retries
            self._report(error)

    def _end_uncertain_term(self) -> None:
        with self._lock:
            uncertain = self._session_id is not None and not self._leads(self._session_id)
        if uncertain:
            self._end_term("ZooKeeper has not confirmed it for too long")

    def _end_term(self, reason: str) -> None:
        with self._lock:
            ended, self._session_id = self._session_id, None
            self._latch = None
            self._information = None
        if ended is not None:
            log.warning("leadership revoked, session %s: %s", ended, reason)
            if self._notifier is not None:
                self._notifier.revoke()

    def _resign(self, session_id: str, error: Exception) -> None:
        """End the term of a contender that cannot lead. It joins again behind all others."""
        with self._lock:
            if self._session_id != session_id:
                return
            rest_s = _REST_IN_TIMEOUTS * self._connection.session_timeout_s
            self._rests_until = self._clock.monotonic() + rest_s
        self._end_term(f"the contender cannot lead and gives way to others for {rest_s:g} s: {error!r}")
        self._wake.set()

    def _report(self, error: HighAvailabilityError) -> None:
        if self._notifier is not None:
            self._notifier.put(lambda contender: contender.on_error(error))


class _Notifier:
    """Calls the contender, in order, on a separate thread. A grant whose term is over is not delivered.

    `give_up(session_id, error)` is called if the contender refuses a grant.
    """

    def __init__(
        self,
        contender: LeaderContender,
        is_current: Callable[[str], bool],
        give_up: Callable[[str, Exception], None],
    ) -> None:
        self.contender = contender
        self._is_current = is_current
        self._resign = give_up
        self._granted = False
        self._calls: queue.SimpleQueue[Callable[[LeaderContender], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="leader-contender", daemon=True)
        self._thread.start()

    def grant(self, session_id: str) -> None:
        self.put(lambda contender: self._grant(contender, session_id))

    def revoke(self) -> None:
        self.put(self._revoke)

    def put(self, call: Callable[[LeaderContender], None]) -> None:
        self._calls.put(call)

    def close(self) -> None:
        """Deliver the remaining calls, then end. If the contender itself calls this, end after its call."""
        self._calls.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _grant(self, contender: LeaderContender, session_id: str) -> None:
        if not self._is_current(session_id):
            return
        self._granted = True
        try:
            contender.grant_leadership(session_id)
        except Exception as error:
            log.exception("a leader contender cannot lead")
            self._resign(session_id, error)

    def _revoke(self, contender: LeaderContender) -> None:
        if self._granted:
            self._granted = False
            contender.revoke_leadership()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call(self.contender)
            except Exception as error:
                log.exception("a leader contender failed")
                self.contender.on_fatal_error(error)


def _sequence(latch: str) -> int:
    return int(latch[-10:])
