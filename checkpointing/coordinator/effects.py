"""The effects that the coordinator requests. Its runner performs them in their order.

A step blocks. The runner performs it on another thread and reports its end to the coordinator, as an event. A timer has
a name. Setting it again replaces it, and cancelling a timer that is not set does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from checkpointing.coordinator.ports import CheckpointLocation, CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.coordinator.requests import CheckpointRequest
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import CheckpointKind, NotifyAborted, NotifyComplete, StateFile, TriggerCheckpoint
from checkpointing.model.status import JobStatus

# --- steps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AllocateId:
    """Result: a checkpoint id, at least `least_id`."""

    request: CheckpointRequest
    plan: CheckpointPlan
    least_id: int


@dataclass(frozen=True)
class MakeLocation:
    """Result: a CheckpointLocation."""

    checkpoint_id: int
    kind: CheckpointKind
    target_directory: str | None


@dataclass(frozen=True)
class WriteMetadata:
    """Result: the size of the metadata in bytes."""

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True)
class Added:
    """The store after a checkpoint was added: what it contains, oldest first, and what left it and must be discarded.

    A checkpoint that left the store and is in neither list keeps its files, because the store could not remove its
    handle. `withdrawn`: the IDs of AddCheckpoint.uncertain that are certainly not in the store now.
    """

    retained: tuple[CompletedCheckpoint, ...]
    dropped: Sequence[CompletedCheckpoint]
    withdrawn: Sequence[int] = ()


@dataclass(frozen=True)
class AddCheckpoint:
    """Add the checkpoint to the store. The result is Added.

    `uncertain`: IDs of earlier checkpoints that may or may not be in the store.
    """

    checkpoint: CompletedCheckpoint
    uncertain: tuple[int, ...]


@dataclass(frozen=True)
class ReadStore:
    """Result: the checkpoints that an earlier job manager stored, oldest first."""

    recovered: Future[CompletedCheckpoint | None]


@dataclass(frozen=True)
class AddClaimed:
    """Result: the store's checkpoints, including `checkpoint`, oldest first."""

    checkpoint: CompletedCheckpoint
    recovered: Future[CompletedCheckpoint | None]


@dataclass(frozen=True)
class RemoveSnapshot:
    """Remove a snapshot.

    `is_claimed`: the snapshot came from another job, with its shared files. `failures`: earlier failed removals.
    """

    location: CheckpointLocation
    is_claimed: bool = False
    failures: int = 0


@dataclass(frozen=True)
class RemoveShared:
    files: tuple[StateFile, ...]


@dataclass(frozen=True)
class CloseStore:
    """Result: the checkpoints that the store has removed."""

    status: JobStatus
    is_saved: bool


@dataclass(frozen=True)
class CloseCounter:
    status: JobStatus


@dataclass(frozen=True)
class RemoveEmptyDirectories:
    """The last step of a shutdown."""


Step = (
    AllocateId
    | MakeLocation
    | WriteMetadata
    | AddCheckpoint
    | ReadStore
    | AddClaimed
    | RemoveSnapshot
    | RemoveShared
    | CloseStore
    | CloseCounter
    | RemoveEmptyDirectories
)

# --- timers ---------------------------------------------------------------------------------------------------------


class JobTimer(Enum):
    PERIODIC = auto()
    SHARED_REMOVAL = auto()


@dataclass(frozen=True)
class ExpiryTimer:
    checkpoint_id: int


@dataclass(frozen=True)
class RemovalTimer:
    directory: str


TimerName = JobTimer | ExpiryTimer | RemovalTimer

# --- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send `message` to the job's driver."""

    message: TriggerCheckpoint | NotifyComplete | NotifyAborted


@dataclass(frozen=True)
class Do:
    """Perform `step` outside the coordinator, then call its `step_done` or `step_failed`."""

    step: Step


@dataclass(frozen=True)
class SetTimer:
    """Call `timer_fired` of the coordinator in `delay_s` seconds of monotonic time."""

    timer: TimerName
    delay_s: float


@dataclass(frozen=True)
class CancelTimer:
    timer: TimerName


@dataclass(frozen=True)
class Resolve:
    """Complete a future that the coordinator returned earlier."""

    future: Future[Any]
    result: object


@dataclass(frozen=True)
class Reject:
    future: Future[Any]
    error: Exception


@dataclass(frozen=True)
class FailJob:
    """Fail the job, because more checkpoints failed than it tolerates."""

    message: str
    exception: CheckpointException


@dataclass(frozen=True)
class ReportLeftBehind:
    """Report that files could not be removed after all retries. `what` describes them."""

    what: str
    error: Exception


Effect = Send | Do | SetTimer | CancelTimer | Resolve | Reject | FailJob | ReportLeftBehind
