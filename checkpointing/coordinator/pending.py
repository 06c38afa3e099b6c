"""A pending checkpoint: who must still acknowledge it, and the state that it has received so far."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.coordinator.requests import CheckpointRequest
from checkpointing.coordinator.stats_model import NOT_YET
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    SubtaskState,
)
from checkpointing.model.messages import AcknowledgeCheckpoint, Channel, Vertex


class AcknowledgeOutcome(Enum):
    SUCCESS = "SUCCESS"
    DUPLICATE = "DUPLICATE"
    UNKNOWN = "UNKNOWN"
    DISCARDED = "DISCARDED"


class IllegalCheckpointState(RuntimeError):
    """The phase of a pending checkpoint does not allow the requested step: a bug of the caller."""


class PendingPhase(Enum):
    """COLLECTING acknowledgements → WRITING metadata → WRITTEN → ADDING to the store → COMPLETED; or ABORTED.

    A checkpoint stays WRITTEN while an older one is being added to the store. While ADDING, it can no longer be
    aborted, because the store may already have it.
    """

    COLLECTING = "COLLECTING"
    WRITING = "WRITING"
    WRITTEN = "WRITTEN"
    ADDING = "ADDING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


@dataclass(frozen=True)
class JobIdentity:
    """The job's identity in a checkpoint's metadata."""

    job_id: str
    job_name: str
    entry_class: str
    imported_queries: tuple[str, ...] = ()


class _VertexStates:
    """The states of one vertex's subtasks, None where the acknowledgement is missing. A list needs no look-up."""

    __slots__ = ("states", "vertex")

    def __init__(self, vertex: Vertex) -> None:
        self.vertex = vertex
        self.states: list[SubtaskState | None] = [None] * vertex.parallelism

    def operator_state(self) -> OperatorState:
        """Return the state of a fully acknowledged vertex."""
        subtasks = tuple(state for state in self.states if state is not None)
        vertex = self.vertex
        return OperatorState(
            vertex.id,
            vertex.name,
            vertex.kind,
            vertex.query,
            vertex.parallelism,
            subtasks,
            vertex.after_restore,
            vertex.repeats_numbers,
        )


class PendingCheckpoint:
    """A pending checkpoint. Used on the coordinator's thread only.

    One acknowledgement costs the same for 1 and for 100,000 subtasks.
    """

    def __init__(
        self, *, checkpoint_id: int, request: CheckpointRequest, plan: CheckpointPlan, trigger_timestamp: int
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.request = request
        self.trigger_timestamp = trigger_timestamp
        self.location: CheckpointLocation | None = None
        self.metadata_size = NOT_YET
        self.written: CompletedCheckpoint | None = None
        self.phase = PendingPhase.COLLECTING
        self._vertices = {vertex.id: _VertexStates(vertex) for vertex in plan.vertices}
        self._batch_numbers = plan.batch_numbers
        self._num_subtasks = plan.num_subtasks
        self._num_acknowledged = 0
        self._batches: dict[str, int] = {}
        self._channels: dict[Channel, None] = {}
        self._delay = ""
        self._is_in_batch = False
        self._progressed_s: float | None = None

    @property
    def properties(self) -> CheckpointProperties:
        return self.request.properties

    @property
    def future(self) -> Future[CompletedCheckpoint]:
        return self.request.future

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        return tuple(owed.vertex for owed in self._vertices.values())

    @property
    def num_outstanding(self) -> int:
        return self._num_subtasks - self._num_acknowledged

    @property
    def num_acknowledged(self) -> int:
        return self._num_acknowledged

    @property
    def is_fully_acknowledged(self) -> bool:
        return self._num_acknowledged == self._num_subtasks and self.phase is not PendingPhase.ABORTED

    @property
    def is_abortable(self) -> bool:
        return self.phase in (PendingPhase.COLLECTING, PendingPhase.WRITING, PendingPhase.WRITTEN)

    @property
    def can_be_subsumed(self) -> bool:
        return not self.properties.is_savepoint

    def acknowledge(self, message: AcknowledgeCheckpoint, acknowledged_ms: int) -> AcknowledgeOutcome:
        if self.phase is PendingPhase.ABORTED:
            return AcknowledgeOutcome.DISCARDED
        vertex = self._vertices.get(message.vertex_id)
        index = message.subtask
        if vertex is None or not 0 <= index < len(vertex.states):
            return AcknowledgeOutcome.UNKNOWN
        if vertex.states[index] is not None:
            return AcknowledgeOutcome.DUPLICATE
        vertex.states[index] = SubtaskState(index, message.metrics, message.files, acknowledged_ms)
        self._num_acknowledged += 1
        self._batches.update(message.batches)
        self._channels.update(dict.fromkeys(message.channels))
        return AcknowledgeOutcome.SUCCESS

    def delayed(self, cause: str, progressed_s: float | None = None) -> None:
        """Store what the tasks wait for, "" if they wait no longer.

        Args:
            progressed_s: when (monotonic) the batches that the tasks wait for last made progress; None when the tasks
                wait for no batch. The earlier value then stays: the state of a long batch needs time to be saved.
        """
        self._delay = cause
        self._is_in_batch = progressed_s is not None
        if progressed_s is not None:
            self._progressed_s = progressed_s

    def time_left_s(self, now_s: float, timeout_s: float) -> float:
        """Return how long the checkpoint may still wait after its timeout; at most 0 if it has expired.

        A batch that computes has not failed, so the timeout counts from its last progress. A savepoint expires after
        one timeout: the person who triggered it expects an answer by then, not a job that stops much later.
        """
        if self._progressed_s is None or self.properties.is_savepoint or self.phase is not PendingPhase.COLLECTING:
            return 0.0
        return self._progressed_s + timeout_s - now_s

    def silence_s(self, now_s: float) -> float | None:
        """Return how long the awaited batch has made no progress, or None if the checkpoint waits for no batch."""
        return now_s - self._progressed_s if self._is_in_batch and self._progressed_s is not None else None

    @property
    def waiting_for(self) -> str:
        """Return why the checkpoint is not complete: the storage, the tasks' report, or missing acknowledgements."""
        if self.location is None:
            return "The storage has not made its directory yet."
        if self.phase in (PendingPhase.WRITING, PendingPhase.WRITTEN):
            return "The storage has not written its metadata yet."
        total = self.num_acknowledged + self.num_outstanding
        return self._delay or f"{self.num_outstanding} of {total} subtasks have not acknowledged it."

    def conflicting_batch(self, batches: dict[str, int]) -> str | None:
        """Return a sentence if `batches` names another batch of a query than an earlier acknowledgement, else None.

        A snapshot whose subtasks are at different batches is not consistent and must never complete.
        """
        for query, batch in batches.items():
            known = self._batches.get(query, batch)
            if known != batch:
                return f"query {query} was acknowledged at batch {known} and at batch {batch}"
        return None

    def metadata_written(self, checkpoint: CompletedCheckpoint, metadata_size: int) -> None:
        """Store that `checkpoint`, which `finalize` returned, is durable. `metadata_size` is in bytes."""
        self.phase = PendingPhase.WRITTEN
        self.written = checkpoint
        self.metadata_size = metadata_size

    def abort(self, exception: CheckpointException) -> None:
        """End the checkpoint. The caller discards its files and completes its future."""
        if exception.reason is CheckpointFailureReason.CHECKPOINT_SUBSUMED and not self.can_be_subsumed:
            raise IllegalCheckpointState(f"savepoint {self.checkpoint_id} cannot be subsumed")
        if not self.is_abortable:
            raise IllegalCheckpointState(f"checkpoint {self.checkpoint_id} is {self.phase.value}")
        self.phase = PendingPhase.ABORTED

    def withdraw(self) -> None:
        """End the checkpoint after a failed finalization, also while ADDING, because the store's answer is known."""
        self.phase = PendingPhase.ABORTED

    def finalize(self, job: JobIdentity, completion_timestamp: int) -> CompletedCheckpoint:
        """Return the complete checkpoint as a value. From now on its metadata is being written."""
        if self.num_outstanding or self.location is None or self.phase is not PendingPhase.COLLECTING:
            raise IllegalCheckpointState(
                f"checkpoint {self.checkpoint_id} is {self.phase.value} and waits for {self.num_outstanding} subtasks"
            )
        self.phase = PendingPhase.WRITING
        return CompletedCheckpoint(
            job_id=job.job_id,
            job_name=job.job_name,
            entry_class=job.entry_class,
            checkpoint_id=self.checkpoint_id,
            properties=self.properties,
            trigger_timestamp=self.trigger_timestamp,
            completion_timestamp=completion_timestamp,
            operators=tuple(vertex.operator_state() for vertex in self._vertices.values()),
            batches=dict(self._batches),
            channels=tuple(self._channels),
            location=self.location.directory,
            shared_location=self.location.shared_directory,
            batch_numbers=self._batch_numbers,
            imported_queries=job.imported_queries,
        )
