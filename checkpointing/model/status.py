"""The job's state machine as data (Flink's JobStatus)."""

from __future__ import annotations

from enum import Enum


class JobStatus(Enum):
    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def globally_terminal(self) -> bool:
        """The job has ended everywhere: no job manager may recover it."""
        return self in _GLOBALLY_TERMINAL

    @property
    def terminal(self) -> bool:
        """Ended for this job manager; a SUSPENDED job may be recovered by another."""
        return self in _GLOBALLY_TERMINAL or self is JobStatus.SUSPENDED


_GLOBALLY_TERMINAL = frozenset({JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED})

_S = JobStatus
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    _S.INITIALIZING: frozenset({_S.CREATED, _S.RECONCILING, _S.CANCELLING, _S.CANCELED, _S.FAILED, _S.SUSPENDED}),
    _S.CREATED: frozenset({_S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    # RUNNING to RESTARTING: not after a failure but to change the parallelism, as Flink's adaptive scheduler does.
    _S.RUNNING: frozenset({_S.FAILING, _S.RESTARTING, _S.CANCELLING, _S.FINISHED, _S.SUSPENDED}),
    _S.FAILING: frozenset({_S.RESTARTING, _S.FAILED, _S.CANCELLING, _S.SUSPENDED}),
    _S.RESTARTING: frozenset({_S.CREATED, _S.CANCELLING, _S.CANCELED, _S.FAILING, _S.FAILED, _S.SUSPENDED}),
    _S.CANCELLING: frozenset({_S.CANCELED, _S.FAILED, _S.SUSPENDED}),
    _S.RECONCILING: frozenset({_S.RUNNING, _S.CREATED, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    _S.SUSPENDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELED: frozenset(),
    _S.FINISHED: frozenset(),
}


class IllegalTransition(RuntimeError):
    """A job was asked to move along an edge that the table does not have."""

    def __init__(self, source: JobStatus, target: JobStatus) -> None:
        super().__init__(f"a job cannot go from {source.value} to {target.value}")
        self.source = source
        self.target = target
