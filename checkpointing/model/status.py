"""The status of a job and its allowed changes, as data (Flink's JobStatus)."""

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
        """Return whether the job has ended everywhere, so that no job manager may recover it."""
        return self in _GLOBALLY_TERMINAL

    @property
    def terminal(self) -> bool:
        """Return whether the job has ended for this job manager. Another one may recover a SUSPENDED job."""
        return self in _GLOBALLY_TERMINAL or self is JobStatus.SUSPENDED


_GLOBALLY_TERMINAL = frozenset({JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED})

_S = JobStatus
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    _S.INITIALIZING: frozenset({_S.CREATED, _S.RECONCILING, _S.CANCELLING, _S.CANCELED, _S.FAILED, _S.SUSPENDED}),
    _S.CREATED: frozenset({_S.RUNNING, _S.FAILING, _S.CANCELLING, _S.SUSPENDED}),
    # RUNNING changes to RESTARTING for a new parallelism, not after a failure, as in Flink's adaptive scheduler.
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
    """The table does not allow this change of a job's status."""

    def __init__(self, source: JobStatus, target: JobStatus) -> None:
        super().__init__(f"a job cannot go from {source.value} to {target.value}")
        self.source = source
        self.target = target
