"""What can go wrong with high availability data.

    HighAvailabilityError
     ├─ ConnectionUnavailable      no answer: whether the operation took place is not known
     ├─ ZooKeeperRefusal           the server said no: nothing was changed
     │   ├─ NodeMissing · NodeExists · NodeChanged · NodeNotEmpty
     ├─ LeadershipLost             the fence of this leader's term is gone: nothing was changed
     ├─ CounterUnavailable         no checkpoint id can be given now
     │   ├─ CounterOverflow        … nor ever again
     │   └─ CounterUnreadable      … until a person has looked: the counter's node holds something else
     ├─ CheckpointsUnreadable      handles exist, but not one checkpoint behind them can be read
     ├─ JobGraphUnreadable         a stored job graph cannot be read
     ├─ AttemptTaken               another attempt of the job lives
     └─ AttemptUnreadable          something that no driver wrote stands in the place of an attempt

`coordinator.ports.PossibleInconsistentState` is raised where ConnectionUnavailable meets files that only the unknown
outcome decides about: they must stay.
"""

from __future__ import annotations


class HighAvailabilityError(Exception):
    """Base of all errors of this package."""


class ConnectionUnavailable(HighAvailabilityError):
    pass


class ZooKeeperRefusal(HighAvailabilityError):
    pass


class NodeMissing(ZooKeeperRefusal):
    pass


class NodeExists(ZooKeeperRefusal):
    pass


class NodeChanged(ZooKeeperRefusal):
    """A compare-and-set met another version."""


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
        super().__init__(f"attempt {attempt} of job {job_id} still lives")
        self.attempt = attempt


class AttemptUnreadable(HighAvailabilityError):
    """Whether a driver lives cannot be told, so none may be started."""
