"""Finds the leader that is published in ZooKeeper."""

from __future__ import annotations

import logging
import threading

from checkpointing.clock import Clock
from checkpointing.ha.errors import ConnectionUnavailable, ZooKeeperRefusal
from checkpointing.ha.leadership import LeaderInformation
from checkpointing.ha.zookeeper import ConnectionState, Watch, ZooKeeperConnection
from checkpointing.ha.zookeeper_leader_election import CONNECTION_INFO

_LONGEST_WAIT_S = 1.0

log = logging.getLogger(__name__)


class ZooKeeperLeaderRetrieval:
    """Reads the leader from the server each time. While the connection is suspended, no leader is known.

    A connection with a name ignores an address that others could have written, because the token is sent to it.
    """

    def __init__(self, connection: ZooKeeperConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._changed = threading.Event()

    def current(self) -> LeaderInformation | None:
        return self._read(None)

    def wait(self, timeout_s: float, *, other_than: str | None = None) -> LeaderInformation | None:
        deadline = self._clock.monotonic() + timeout_s
        while True:
            self._changed.clear()
            information = self._read(self._on_watch)
            if information is not None and information.session_id != other_than:
                return information
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                return None
            self._changed.wait(min(remaining, _LONGEST_WAIT_S))

    def close(self) -> None:
        """Do nothing: the creator of the connection closes it."""

    def _read(self, watch: Watch | None) -> LeaderInformation | None:
        if self._connection.state is not ConnectionState.CONNECTED:
            return None
        try:
            node = self._connection.find(CONNECTION_INFO, watch)
            if node is not None and not self._connection.is_ours(CONNECTION_INFO):
                log.warning("others can change the address of the leader in ZooKeeper: it is not used")
                return None
        except (ConnectionUnavailable, ZooKeeperRefusal):  # the node is gone, or reading it is not allowed
            return None
        return None if node is None else LeaderInformation.decode(node.data)

    def _on_watch(self, _event: object) -> None:
        self._changed.set()
