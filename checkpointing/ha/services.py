"""Services for data that outlives a job manager, made by `standalone_services` or `zookeeper_services`.

    leader_election, leader_retrieval   who leads
    job_graphs                          which jobs run
    job_results                         which jobs are over
    recovery_factory                    a job's completed checkpoints and its checkpoint ids
    attempts                            which driver of a job is running

Everything here blocks (round trips to ZooKeeper, files) and is called from worker threads, not from an event loop.
`close` ends this process's session and so its leadership. Stored data stays.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from checkpointing.clock import Clock, SystemClock
from checkpointing.ha.attempts import AttemptRegistry, StandaloneAttemptRegistry, ZooKeeperAttemptRegistry
from checkpointing.ha.checkpoint_id_counter import (
    CheckpointIDCounter,
    StandaloneCheckpointIDCounter,
    ZooKeeperCheckpointIDCounter,
)
from checkpointing.ha.completed_checkpoints import HANDLE_NAME, HandleCompletedCheckpointStore, LoadCheckpoint
from checkpointing.ha.errors import HighAvailabilityError, LeadershipLost, NodeMissing, NodeNotEmpty
from checkpointing.ha.job_graphs import HandleJobGraphStore, JobGraphStore, StandaloneJobGraphStore
from checkpointing.ha.job_results import FileJobResultStore, JobResultStore
from checkpointing.ha.leadership import (
    LeaderElection,
    LeaderRetrieval,
    StandaloneLeaderElection,
    StandaloneLeaderRetrieval,
)
from checkpointing.ha.state_handles import InMemoryStateHandleStore
from checkpointing.ha.zookeeper import Delete, Fence, ZooKeeperConnection
from checkpointing.ha.zookeeper_access import OPEN, opened
from checkpointing.ha.zookeeper_leader_election import ZooKeeperLeaderElection
from checkpointing.ha.zookeeper_leader_retrieval import ZooKeeperLeaderRetrieval
from checkpointing.ha.zookeeper_state_handles import ZooKeeperStateHandleStore
from checkpointing.model.driver_spec import HighAvailabilitySpec
from checkpointing.model.status import JobStatus
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles

DEFAULT_ROOT = "/waymark"
DEFAULT_CLUSTER_ID = "default"
DEFAULT_SESSION_TIMEOUT_S = 10.0

_JOB_ID = re.compile(r"[0-9a-f]{32}")


class HighAvailabilityMode(Enum):
    NONE = "NONE"
    ZOOKEEPER = "ZOOKEEPER"


@dataclass(frozen=True)
class HighAvailabilitySettings:
    """The settings. `storage_directory` is shared by all job managers; `hosts` is `host:port,host:port[/chroot]`."""

    storage_directory: Path
    mode: HighAvailabilityMode = HighAvailabilityMode.NONE
    hosts: str = ""
    root: str = DEFAULT_ROOT
    cluster_id: str = DEFAULT_CLUSTER_ID
    session_timeout_s: float = DEFAULT_SESSION_TIMEOUT_S
    access: ZooKeeperAccessFiles | None = None

    def __post_init__(self) -> None:
        if self.mode is HighAvailabilityMode.ZOOKEEPER and not self.hosts:
            raise ValueError("hosts: high availability with ZooKeeper needs the addresses of its servers")
        if not self.cluster_id.strip("/"):
            raise ValueError("cluster_id must not be empty")


@dataclass(frozen=True)
class CheckpointRecovery:
    """The checkpoints and IDs of one job, for one term of one leader. Call `store.recover()` before use."""

    store: HandleCompletedCheckpointStore
    counter: CheckpointIDCounter
    term_lasts: Callable[[], bool]
    """Call it right before each action without a fence. Fast; True only while certainly no other job manager leads."""


class CheckpointRecoveryFactory(Protocol):
    def create(self, job_id: str, num_retained: int) -> CheckpointRecovery:
        """Return the recovery of a job. Raise LeadershipLost if an election runs and this job manager does not lead."""
        ...


class HighAvailabilityServices(Protocol):
    @property
    def leader_election(self) -> LeaderElection: ...

    @property
    def leader_retrieval(self) -> LeaderRetrieval: ...

    @property
    def job_graphs(self) -> JobGraphStore: ...

    @property
    def job_results(self) -> JobResultStore: ...

    @property
    def attempts(self) -> AttemptRegistry: ...

    @property
    def recovery_factory(self) -> CheckpointRecoveryFactory: ...

    @property
    def driver_specification(self) -> HighAvailabilitySpec | None:
        """Return what a driver needs to find the leader and to claim its job, or None in standalone mode."""
        ...

    def clean_up(self, job_id: str) -> None:
        """Remove the checkpoint handles and the counter of a job that is over for all job managers. May be repeated.

        Raise LeadershipLost if an election runs and this job manager does not lead. The job graph and the result have
        their own stores.
        """
        ...

    def close(self) -> None: ...


class StandaloneServices:
    def __init__(self, state_directory: Path, load_checkpoint: LoadCheckpoint) -> None:
        self.leader_election = StandaloneLeaderElection()
        self.leader_retrieval: LeaderRetrieval = StandaloneLeaderRetrieval(self.leader_election)
        self.job_graphs: JobGraphStore = StandaloneJobGraphStore()
        self.job_results: JobResultStore = FileJobResultStore(state_directory / "job-result-store")
        self.attempts: AttemptRegistry = StandaloneAttemptRegistry()
        self.recovery_factory: CheckpointRecoveryFactory = StandaloneRecoveryFactory(load_checkpoint)
        self.driver_specification: HighAvailabilitySpec | None = None

    def clean_up(self, job_id: str) -> None:
        """Do nothing, because nothing outlives the process."""

    def close(self) -> None:
        self.leader_election.close()


class StandaloneRecoveryFactory:
    def __init__(self, load_checkpoint: LoadCheckpoint) -> None:
        self._load_checkpoint = load_checkpoint

    def create(self, job_id: str, num_retained: int) -> CheckpointRecovery:
        store = HandleCompletedCheckpointStore(InMemoryStateHandleStore(), num_retained, self._load_checkpoint)
        return CheckpointRecovery(store, StandaloneCheckpointIDCounter(), lambda: True)


class ZooKeeperServices:
    def __init__(
        self,
        connection: ZooKeeperConnection,
        storage_directory: Path,
        load_checkpoint: LoadCheckpoint,
        driver_specification: HighAvailabilitySpec,
        clock: Clock,
    ) -> None:
        self._connection = connection
        self.driver_specification: HighAvailabilitySpec | None = driver_specification
        self.leader_election = ZooKeeperLeaderElection(connection, clock)
        self.leader_retrieval: LeaderRetrieval = ZooKeeperLeaderRetrieval(connection, clock)
        self.attempts: AttemptRegistry = ZooKeeperAttemptRegistry(connection, clock, self._fence)
        graphs = ZooKeeperStateHandleStore(connection, "execution-plans", self._fence, _JOB_ID)
        self.job_graphs: JobGraphStore = HandleJobGraphStore(graphs, storage_directory / "execution-plans")
        self.job_results: JobResultStore = FileJobResultStore(storage_directory / "job-result-store")
        self.recovery_factory: CheckpointRecoveryFactory = ZooKeeperRecoveryFactory(
            connection, self._fence, load_checkpoint
        )

    def clean_up(self, job_id: str) -> None:
        job = f"jobs/{job_id}"
        _checkpoint_handles(self._connection, job, self._fence).clear_entries()
        _counter(self._connection, job, self._fence).shutdown(JobStatus.FINISHED)
        with contextlib.suppress(NodeMissing, NodeNotEmpty):  # a driver that still ends removes it with its claim
            self._connection.retrying(lambda: self._connection.commit([Delete(job)], self._fence()))

    def close(self) -> None:
        self.leader_election.close()
        self._connection.close()

    def _fence(self) -> str | None:
        return self.leader_election.fence


class ZooKeeperRecoveryFactory:
    """Creates stores that are fenced with the term in which they were created."""

    def __init__(self, connection: ZooKeeperConnection, fence: Fence, load_checkpoint: LoadCheckpoint) -> None:
        self._connection = connection
        self._fence = fence
        self._load_checkpoint = load_checkpoint

    def create(self, job_id: str, num_retained: int) -> CheckpointRecovery:
        term = self._fence()
        job = f"jobs/{job_id}"
        handles = _checkpoint_handles(self._connection, job, lambda: term)
        return CheckpointRecovery(
            HandleCompletedCheckpointStore(handles, num_retained, self._load_checkpoint),
            _counter(self._connection, job, lambda: term),
            lambda: self._is_current(term),
        )

    def _is_current(self, term: str | None) -> bool:
        try:
            return self._fence() == term
        except LeadershipLost:
            return False


def _checkpoint_handles(connection: ZooKeeperConnection, job: str, fence: Fence) -> ZooKeeperStateHandleStore:
    return ZooKeeperStateHandleStore(connection, f"{job}/checkpoints", fence, HANDLE_NAME)


def _counter(connection: ZooKeeperConnection, job: str, fence: Fence) -> ZooKeeperCheckpointIDCounter:
    return ZooKeeperCheckpointIDCounter(connection, f"{job}/checkpoint_id_counter", fence)


def standalone_services(state_directory: Path, load_checkpoint: LoadCheckpoint) -> HighAvailabilityServices:
    return StandaloneServices(state_directory.absolute(), load_checkpoint)


def zookeeper_services(
    hosts: str,
    root: str,
    cluster_id: str,
    storage_directory: Path,
    load_checkpoint: LoadCheckpoint,
    session_timeout_s: float = DEFAULT_SESSION_TIMEOUT_S,
    *,
    clock: Clock | None = None,
    access: ZooKeeperAccessFiles | None = None,
) -> HighAvailabilityServices:
    """Connect. Raise ConnectionUnavailable if no server answers. `clock` measures leases and waits."""
    path = f"{root.rstrip('/')}/{cluster_id.strip('/')}"
    asked_as = opened(access) if access else OPEN
    connection = ZooKeeperConnection(hosts, path, session_timeout_s=session_timeout_s, access=asked_as)
    connection.start()
    specification = HighAvailabilitySpec(hosts, path, session_timeout_s, access)
    try:
        connection.retrying(connection.protect)
        return ZooKeeperServices(
            connection, storage_directory.absolute(), load_checkpoint, specification, clock or SystemClock()
        )
    except HighAvailabilityError:
        connection.close()
        raise


def make_services(settings: HighAvailabilitySettings, load_checkpoint: LoadCheckpoint) -> HighAvailabilityServices:
    if settings.mode is HighAvailabilityMode.NONE:
        return standalone_services(settings.storage_directory, load_checkpoint)
    return zookeeper_services(
        settings.hosts,
        settings.root,
        settings.cluster_id,
        settings.storage_directory,
        load_checkpoint,
        settings.session_timeout_s,
        access=settings.access,
    )
