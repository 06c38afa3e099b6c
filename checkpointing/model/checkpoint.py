"""A completed checkpoint and its properties: plain values that the stores, the storage and the REST API share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.messages import AfterRestore, Channel, CheckpointKind, StateFile, SubtaskMetrics, VertexKind
from checkpointing.model.status import JobStatus


class RetentionPolicy(Enum):
    """Flink's `execution.checkpointing.externalized-checkpoint-retention`."""

    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"


_DISCARDED_ON: dict[RetentionPolicy, frozenset[JobStatus]] = {
    RetentionPolicy.NO_EXTERNALIZED_CHECKPOINTS: frozenset(
        {JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED}
    ),
    RetentionPolicy.DELETE_ON_CANCELLATION: frozenset({JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.SUSPENDED}),
    RetentionPolicy.RETAIN_ON_CANCELLATION: frozenset({JobStatus.FINISHED}),
}


@dataclass(frozen=True)
class CheckpointProperties:
    """What may happen to a checkpoint's files.

    `unclaimed`: the job restored it but must not delete it. `claimed`: the job restored it and owns it, although it is
    outside of the job's directory; then `retention` is that of the job that claimed it.
    """

    kind: CheckpointKind
    retention: RetentionPolicy
    unclaimed: bool = False
    forced: bool = False
    claimed: bool = False

    def claimed_by_job_with(self, retention: RetentionPolicy) -> CheckpointProperties:
        return replace(self, retention=retention, unclaimed=False, claimed=True)

    @property
    def is_savepoint(self) -> bool:
        return self.kind.is_savepoint

    @property
    def is_synchronous(self) -> bool:
        return self.kind is CheckpointKind.SYNC_SAVEPOINT

    @property
    def owned_by_user(self) -> bool:
        return (self.is_savepoint and not self.claimed) or self.unclaimed

    @property
    def discard_on_subsumed(self) -> bool:
        return not self.owned_by_user

    def discard_on(self, status: JobStatus, *, is_saved: bool) -> bool:
        """Return whether the checkpoint is discarded when the job ends in `status`.

        Flink discards the checkpoints of every FINISHED job. Here they stay unless a savepoint holds all that the job
        did (`is_saved`): otherwise no job could continue from its end (decision 122).
        """
        is_all_there_is = status is JobStatus.FINISHED and not is_saved
        if self.owned_by_user or is_all_there_is:
            return False
        return status in _DISCARDED_ON[self.retention]


@dataclass(frozen=True, slots=True)
class SubtaskState:
    index: int
    metrics: SubtaskMetrics
    files: tuple[StateFile, ...]
    acknowledged_ms: int


@dataclass(frozen=True)
class OperatorState:
    """The state of one operator. `after_restore` belongs to a sink. Vertex explains `repeats_numbers`."""

    vertex_id: str
    name: str
    kind: VertexKind
    query: str
    parallelism: int
    subtasks: tuple[SubtaskState, ...]
    after_restore: AfterRestore | None = None
    repeats_numbers: bool = False


@dataclass(frozen=True)
class CompletedCheckpoint:
    """A completed checkpoint. `location` is its own directory, absolute (`…/<job>/chk-7`, `…/savepoint-ab12cd-…`).

    `shared_location` is the pool of its shared files, None if it contains all its files. `entry_class`: the
    program's main class or function.
    `channels`: the directories through which one query feeds another. The checkpoint never has more batches of a
    query than of the query that feeds it.
    `imported_from`: the checkpoint locations of Spark from which the state was copied; its operators have no names.
    `imported_queries`: Spark's IDs of the queries there. The snapshots of each job that continues them have them, too.
    `batch_numbers`: the range of the attempt that took it; None for an import.
    """

    job_id: str
    job_name: str
    entry_class: str
    checkpoint_id: int
    properties: CheckpointProperties
    trigger_timestamp: int
    completion_timestamp: int
    operators: tuple[OperatorState, ...]
    batches: dict[str, int]
    location: str
    shared_location: str | None
    channels: tuple[Channel, ...] = ()
    imported_from: tuple[str, ...] = ()
    batch_numbers: BatchNumbers | None = None
    imported_queries: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Return the family of jobs to which the snapshot's batch numbers belong; see jobs/batch_numbers.py."""
        return self.job_id if self.batch_numbers is None else self.batch_numbers.family

    @property
    def imports(self) -> dict[str, str]:
        """Return the location that each query was copied from, by the query's id; {} unless this is an import."""
        return dict(zip(self.imported_queries, self.imported_from, strict=False))

    @property
    def state_size(self) -> int:
        return sum(s.metrics.state_size for o in self.operators for s in o.subtasks)

    @property
    def files(self) -> tuple[StateFile, ...]:
        return tuple(f for o in self.operators for s in o.subtasks for f in s.files)
