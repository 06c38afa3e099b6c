"""The services that a job uses, assembled once by the process that runs the job manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.ha.services import HighAvailabilityServices
from checkpointing.jobs.batch_numbers import BatchNumberCounters
from checkpointing.jobs.launch_queue import LaunchQueue
from checkpointing.jobs.launcher import DriverLauncher
from checkpointing.jobs.launching.temporary import TemporaryDirectories
from checkpointing.jobs.loop import IoThreads, LoopIoExecutor, LoopTimer
from checkpointing.jobs.programs import ProgramStorage
from checkpointing.jobs.python_environments.environments import PythonEnvironments
from checkpointing.jobs.secret_keys import SecretKeys
from checkpointing.jobs.settings import JobManagerSettings
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import CheckpointConfiguration, CheckpointStorageKind
from checkpointing.model.job_graph import JobGraph
from checkpointing.storage.checkpoint_storage import FileCheckpointStorage
from checkpointing.storage.claims import JobClaims
from checkpointing.storage.locations import JOB_MANAGER_MEMORY
from checkpointing.storage.savepoint_intents import SavepointIntents


@dataclass(frozen=True)
class JobServices:
    """The services of all jobs. `random` returns a number in [-1, 1].

    `address` is where drivers and people reach this job manager. `io` is for work that belongs to no single job. A job
    has two separate executors, one of them for its storage: if that hangs, the driver can still be ended.
    """

    settings: JobManagerSettings
    address: str
    clock: Clock
    timer: LoopTimer
    io: LoopIoExecutor
    io_threads: IoThreads
    high_availability: HighAvailabilityServices
    launcher: DriverLauncher
    launch_queue: LaunchQueue
    programs: ProgramStorage
    temporaries: TemporaryDirectories
    secret_keys: SecretKeys
    environments: PythonEnvironments
    random: Callable[[], float]
    token_file: Path | None
    host_name: str

    def leads(self, session_id: str) -> bool:
        """Return whether the term of `session_id` lasts, so that no one else can lead now. Fast, for any thread."""
        return self.high_availability.leader_election.has_leadership(session_id)

    def io_of(self, job_id: str) -> LoopIoExecutor:
        """Return the executor for a job's directory, its driver and its nodes in ZooKeeper."""
        return self.io_threads.of(f"job {job_id}")

    def storage_io_of(self, job_id: str) -> LoopIoExecutor:
        """Return the executor for a job's checkpoints and savepoints."""
        return self.io_threads.of(f"the storage of job {job_id}")

    def storage_io_at(self, location: str) -> LoopIoExecutor:
        """Return the executor for a location from a request. Each configured root has a separate executor."""
        return self.io_threads.of(self.settings.restore_roots.root_of(location) or "storage outside the roots")

    def storage(
        self,
        graph: JobGraph,
        config: CheckpointConfiguration,
        owns_pool: Callable[[], bool] = lambda: False,
        retained: Callable[[], Sequence[CompletedCheckpoint]] = tuple,
    ) -> FileCheckpointStorage:
        """Return the storage of the job's checkpoints and savepoints. Shared files may be removed while `owns_pool`."""
        in_memory = config.storage is CheckpointStorageKind.JOBMANAGER
        return FileCheckpointStorage(
            JOB_MANAGER_MEMORY if in_memory else config.checkpoint_directory or self.settings.checkpoint_directory,
            graph.job_id,
            savepoint_roots=self.settings.savepoint_roots,
            owns_pool=owns_pool,
            intents=SavepointIntents(self.intents_directory, graph.job_id),
            retained=retained,
        )

    def savepoint_storage(self, job_id: str, owns_pool: Callable[[], bool]) -> FileCheckpointStorage:
        """Return the storage of savepoints that no driver writes. A later job manager removes an incomplete one."""
        return FileCheckpointStorage(
            None,
            job_id,
            savepoint_roots=self.settings.savepoint_roots,
            owns_pool=owns_pool,
            intents=SavepointIntents(self.intents_directory, job_id),
        )

    def claims(self, graph: JobGraph, config: CheckpointConfiguration) -> JobClaims:
        """Return the claims on snapshots that the job takes over."""
        return JobClaims(graph.job_id, self.storage(graph, config).job_directory)

    @property
    def intents_directory(self) -> Path:
        """Return the directory with the intents of unfinished savepoints."""
        return self.settings.state_directory / "savepoint-intents"

    @property
    def batch_number_counters(self) -> BatchNumberCounters:
        return BatchNumberCounters(self.settings.state_directory / "batch-numbers")

    @property
    def jobs_directory(self) -> Path:
        return self.settings.state_directory / "jobs"
