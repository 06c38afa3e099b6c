"""The types that the coordinator exchanges with its surroundings."""

from __future__ import annotations

from dataclasses import dataclass

from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.messages import Vertex


@dataclass(frozen=True)
class CheckpointPlan:
    """The vertices that must acknowledge. If a required task does not run, `ready` is False, with a `reason`.

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
    """The directories of one checkpoint. The storage makes them, and the driver receives them."""

    directory: str
    shared_directory: str | None


class PossibleInconsistentState(Exception):
    """The store may or may not have stored the checkpoint, so its files must stay."""
