"""Real checkpoints of queries in the test's process, with the agent and real storage, but without a job manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from checkpointing.clock import SystemClock
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, TriggerCheckpoint, Vertex
from checkpointing.spark.agent import Acknowledged, CheckpointAgent
from checkpointing.spark.plan import session_of
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.starting_state import ContinuedBatch, build_queries
from checkpointing.spark.task_metrics import BatchFigures
from checkpointing.storage import FileCheckpointStorage, read_metadata
from tests.checkpointing.spark.bench import RANGES, restored_state

JOB = "ab" * 16


@dataclass
class Reports:
    """The agent's reports, by checkpoint. The metrics of a batch are available at once, and are empty."""

    acknowledged: dict[int, list[Acknowledged]] = field(default_factory=dict)
    declined: dict[int, str] = field(default_factory=dict)
    delays: dict[int, list[str]] = field(default_factory=dict)

    def acknowledge(self, checkpoint_id: int, acknowledged: Acknowledged) -> None:
        self.acknowledged.setdefault(checkpoint_id, []).append(acknowledged)

    def delay(self, checkpoint_id: int, cause: str, silent_ms: int | None) -> None:
        self.delays.setdefault(checkpoint_id, []).append(cause)

    def decline(self, checkpoint_id: int, reason: str, cause: str) -> None:
        self.declined[checkpoint_id] = f"{reason}: {cause}"

    def figures(self, query: str, batch: int) -> BatchFigures | None:
        return BatchFigures(batch)


class Taking:
    """The agent of one job, driven by a test: first `trigger`, then `complete`."""

    def __init__(self, queries: Sequence[RunningQuery], root: Path) -> None:
        self.reports = Reports()
        self.agent = CheckpointAgent(queries, self.reports, root / "staging", SystemClock())
        self._queries = queries
        self._storage = FileCheckpointStorage(str(root / "checkpoints"), JOB)
        self._savepoints = str(root / "savepoints")
        self._triggers: dict[int, TriggerCheckpoint] = {}

    @property
    def vertices(self) -> list[Vertex]:
        return [vertex for query in self._queries for vertex in query.planned.plan.vertices]

    def trigger(self, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> None:
        target = self._savepoints if kind.is_savepoint else None
        location = self._storage.initialize_location(checkpoint_id, kind, target)
        message = TriggerCheckpoint("", checkpoint_id, kind, 0, 0, location.directory, location.shared_directory)
        self._triggers[checkpoint_id] = message
        self.agent.trigger(message)

    def is_over(self, checkpoint_id: int) -> bool:
        self.agent.tick()
        done = len(self.reports.acknowledged.get(checkpoint_id, ()))
        return checkpoint_id in self.reports.declined or done == sum(vertex.parallelism for vertex in self.vertices)

    def complete(self, checkpoint_id: int, eventually: Callable[..., object]) -> CompletedCheckpoint:
        """Wait for every acknowledgement, write the manifest, and return the checkpoint as read from it."""
        eventually(f"checkpoint {checkpoint_id}", lambda: self.is_over(checkpoint_id))
        assert checkpoint_id not in self.reports.declined, self.reports.declined
        self.agent.completed(checkpoint_id)
        trigger = self._triggers[checkpoint_id]
        taken = self.reports.acknowledged[checkpoint_id]
        checkpoint = CompletedCheckpoint(
            JOB, "words", "wordcount:wordcount", checkpoint_id,
            CheckpointProperties(trigger.kind, RetentionPolicy.RETAIN_ON_CANCELLATION),
            0, 0, tuple(_operator(vertex, taken) for vertex in self.vertices),
            {each.durable.vertex.query: each.batch for each in taken},
            trigger.directory, trigger.shared_directory,
            tuple(channel for each in taken for channel in each.channels),
        )  # fmt: skip
        self._storage.write_metadata(checkpoint)
        return read_metadata(trigger.directory)


def _operator(vertex: Vertex, taken: Sequence[Acknowledged]) -> OperatorState:
    mine = sorted((each for each in taken if each.durable.vertex == vertex), key=lambda each: each.durable.subtask)
    subtasks = tuple(SubtaskState(each.durable.subtask, each.metrics, each.durable.files, 0) for each in mine)
    return OperatorState(vertex.id, vertex.name, vertex.kind, vertex.query, vertex.parallelism, subtasks)


def restore(checkpoint: CompletedCheckpoint, planned: Sequence[PlannedQuery]) -> Mapping[str, ContinuedBatch]:
    """Build the directories of all queries, as a new attempt does before it starts a query.

    Return the batch from which each query continues.
    """
    root = planned[0].location.parent
    state = restored_state(checkpoint, root)
    return build_queries(state, session_of(planned[0].writer), root, planned, numbers=next(RANGES))


def restored_batches(continued: Mapping[str, ContinuedBatch]) -> dict[str, int]:
    return {query: batch.restored for query, batch in continued.items()}
