"""The driver's side: it finds the leader and claims its job, over a separate session."""

from __future__ import annotations

from checkpointing.clock import Clock, SystemClock
from checkpointing.ha.attempts import ZooKeeperAttemptRegistry
from checkpointing.ha.zookeeper import ZooKeeperConnection
from checkpointing.ha.zookeeper_access import OPEN, ZooKeeperAccess, opened
from checkpointing.ha.zookeeper_leader_retrieval import ZooKeeperLeaderRetrieval
from checkpointing.model.driver_spec import HighAvailabilitySpec

_OPERATIONS_PER_TIMEOUT = 6


class DriverServices:
    """The driver's services. `close` ends the session, and with it a claim that was not released."""

    def __init__(self, specification: HighAvailabilitySpec, clock: Clock) -> None:
        self._connection = ZooKeeperConnection(
            specification.hosts,
            specification.root,
            session_timeout_s=specification.session_timeout_s,
            operation_timeout_s=specification.session_timeout_s / _OPERATIONS_PER_TIMEOUT,
            access=_access(specification),
        )
        self._connection.start()
        self.leader_retrieval = ZooKeeperLeaderRetrieval(self._connection, clock)
        self.attempts = ZooKeeperAttemptRegistry(self._connection, clock)

    def close(self) -> None:
        self._connection.close()


def _access(specification: HighAvailabilitySpec) -> ZooKeeperAccess:
    return opened(specification.access) if specification.access else OPEN


def driver_services(specification: HighAvailabilitySpec, clock: Clock | None = None) -> DriverServices:
    """Return the services of a driver. Raise ConnectionUnavailable if no server answers."""
    return DriverServices(specification, clock or SystemClock())
