"""What the coordinator needs from outside, as protocols. Adapters live in `ha`, `storage`, `jobs`.

Threading: the coordinator is used from one thread (the job manager's main thread). Stores, counters and storage block
and are called only through `IoExecutor`, whose callbacks come back on the main thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import (
    CheckpointKind,
    NotifyAborted,
    NotifyComplete,
    StateFile,
    TriggerCheckpoint,
    Vertex,
)
from checkpointing.model.status import JobStatus

T = TypeVar("T")


class Cancellable(Protocol):
    def cancel(self) -> None: ...


class Timer(Protocol):
    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Run `callback` on the main thread after `delay_s` seconds of monotonic time."""
        ...


class IoExecutor(Protocol):
    def submit(
        self, work: Callable[[], T], on_done: Callable[[T], None], on_error: Callable[[Exception], None]
    ) -> None:
        """Run `work` elsewhere; exactly one of the two callbacks follows, on the main thread."""
        ...


class TaskGateway(Protocol):
    """The way to the job's driver. Sends never block and never raise; a lost driver is reported by its own message."""

    @property
    def session_id(self) -> str: ...

    def trigger_checkpoint(self, message: TriggerCheckpoint) -> None: ...

    def notify_complete(self, message: NotifyComplete) -> None: ...

    def notify_aborted(self, message: NotifyAborted) -> None: ...


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


class CheckpointStorage(Protocol):
    """Where snapshots lie. Blocking; OSError (or a subclass) on any failure."""

    def initialize_location(
        self, checkpoint_id: int, kind: CheckpointKind, target_directory: str | None
    ) -> CheckpointLocation: ...

    def write_metadata(self, checkpoint: CompletedCheckpoint) -> int:
        """Make `_metadata` durable: temporary name, fsync, rename, fsync of the directory. Its size in bytes."""
        ...

    def discard_location(self, location: CheckpointLocation) -> None:
        """Remove a checkpoint's own directory with all in it; a missing one is fine. Never touches the shared pool."""
        ...

    def discard_claimed(self, location: str) -> None:
        """Remove a claimed snapshot, and from the pool it used, not this job's, what no other snapshot there needs."""
        ...

    def discard_shared(self, files: Sequence[StateFile]) -> None: ...

    def remove_empty_directories(self) -> None:
        """The job is over: nothing is written any more. Directories that hold a retained checkpoint stay."""
        ...


class PossibleInconsistentState(Exception):
    """The store may or may not have taken the checkpoint: its files must stay."""


class CompletedCheckpointStore(Protocol):
    """The retained checkpoints of one job, oldest first. Blocking."""

    def add_checkpoint(self, checkpoint: CompletedCheckpoint) -> Sequence[CompletedCheckpoint]:
        """Keep `checkpoint`, drop what is beyond the retained number; the caller discards what is returned."""
        ...

    def withdraw(self, checkpoint_id: int) -> bool:
        """After PossibleInconsistentState: make sure that the checkpoint is not stored. False: it may still be."""
        ...

    def recover(self) -> None:
        """Read what an earlier job manager stored; CheckpointsUnreadable when handles exist and none can be read."""
        ...

    def shutdown(self, status: JobStatus) -> Sequence[CompletedCheckpoint]:
        """Globally terminal: forget all and return them. Else keep everything for the next job manager, return ()."""
        ...

    @property
    def checkpoints(self) -> Sequence[CompletedCheckpoint]: ...

    @property
    def latest(self) -> CompletedCheckpoint | None: ...


class CheckpointIDCounter(Protocol):
    """Ascending checkpoint ids of one job, also across job managers. Blocking."""

    def get_and_increment(self) -> int: ...

    def get(self) -> int: ...

    def set_count(self, value: int) -> None: ...

    def shutdown(self, status: JobStatus) -> None: ...
