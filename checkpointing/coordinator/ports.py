"""What the coordinator and its surroundings exchange."""

from __future__ import annotations

from dataclasses import dataclass

from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.messages import Vertex


@dataclass(frozen=True)
class CheckpointPlan:
    """Who must acknowledge. `ready` is False with the `reason` when a required task is not running.

    `batch_numbers`: the range of the attempt, for the snapshot's metadata.
    """

    vertices: tuple[Vertex, ...]
    ready: bool
    reason: str = ""
    batch_numbers: BatchNumbers | None = None

    @property
    def num_subtasks(self) -> int:
        return sum(vertex.parallelism for vertex in self.vertices)


@dataclass(frozen=True)
class CheckpointLocation:
    """Where one checkpoint goes: made by the storage, given to the driver."""

    directory: str
    shared_directory: str | None


class PossibleInconsistentState(Exception):
    """The store may or may not have taken the checkpoint: its files must stay."""
