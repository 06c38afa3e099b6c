"""The errors of high availability data.

    HighAvailabilityError
     ├─ ConnectionUnavailable      no answer: it is unknown whether the operation took place
     ├─ ZooKeeperRefusal           the server refused: nothing was changed
     │   ├─ NodeMissing · NodeExists · NodeChanged · NodeNotEmpty
     ├─ LeadershipLost             the fence of this leader's term is gone: nothing was changed
     ├─ CounterUnavailable         no checkpoint ID is available now
     │   ├─ CounterOverflow        … or ever again
     │   └─ CounterUnreadable      … until a person repairs the counter's node, which contains something else
     ├─ CheckpointsUnreadable      handles exist, but none of their checkpoints can be read
     ├─ JobGraphUnreadable         a stored job graph cannot be read
     ├─ AttemptTaken               another attempt of the job is running
     └─ AttemptUnreadable          the node of an attempt contains something that no driver wrote

`coordinator.ports.PossibleInconsistentState` is raised instead of ConnectionUnavailable if files depend on the unknown
outcome: they must stay.
"""

from __future__ import annotations


class HighAvailabilityError(Exception):
    """The base of all errors of this package."""


class ConnectionUnavailable(HighAvailabilityError):
    pass


class ZooKeeperRefusal(HighAvailabilityError):
    pass


class NodeMissing(ZooKeeperRefusal):
    pass


class NodeExists(ZooKeeperRefusal):
    pass


class NodeChanged(ZooKeeperRefusal):
    """A compare-and-set found another version."""


class NodeNotEmpty(ZooKeeperRefusal):
    pass


class LeadershipLost(HighAvailabilityError):
    pass


class CounterUnavailable(HighAvailabilityError):
    pass


class CounterOverflow(CounterUnavailable):
    pass


class CounterUnreadable(CounterUnavailable):
    pass


class CheckpointsUnreadable(HighAvailabilityError):
    pass


class JobGraphUnreadable(HighAvailabilityError):
    pass


class AttemptTaken(HighAvailabilityError):
    def __init__(self, job_id: str, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of job {job_id} is still running")
        self.attempt = attempt


class AttemptUnreadable(HighAvailabilityError):
    """It is unknown whether a driver is running, so none may be started."""
