"""The last steps of a fully acknowledged checkpoint: metadata made durable, then the store.

The two blocking steps run through the IoExecutor; between them the checkpoint may be aborted, during the second not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.coordinator.pending import PendingCheckpoint, PendingPhase
from checkpointing.coordinator.ports import CheckpointStorage, CompletedCheckpointStore, IoExecutor

Completed = Callable[[PendingCheckpoint, CompletedCheckpoint, Sequence[CompletedCheckpoint]], None]
Failed = Callable[[PendingCheckpoint, Exception], None]
Abandoned = Callable[[PendingCheckpoint], None]


class CheckpointFinalizer:
    """Exactly one of the three callbacks follows each `finalize`.

    `on_completed(pending, checkpoint, dropped)`: durable, and in the store unless it is a savepoint; `dropped` left it.
    `on_failed(pending, error)`: not completed. `on_abandoned(pending)`: aborted meanwhile, its files may go now.
    """

    def __init__(
        self,
        *,
        storage: CheckpointStorage,
        store: CompletedCheckpointStore,
        io: IoExecutor,
        on_completed: Completed,
        on_failed: Failed,
        on_abandoned: Abandoned,
    ) -> None:
        self._storage = storage
        self._store = store
        self._io = io
        self._on_completed = on_completed
        self._on_failed = on_failed
        self._on_abandoned = on_abandoned

    def finalize(self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint) -> None:
        """Write the metadata of `checkpoint`, which `pending.finalize` gave."""
        self._io.submit(
            lambda: self._storage.write_metadata(checkpoint),
            lambda _: self._written(pending, checkpoint),
            lambda error: self._not_written(pending, error),
        )

    def _written(self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint) -> None:
        if pending.is_aborted:
            self._on_abandoned(pending)
            return
        pending.cancel_expiry()
        pending.phase = PendingPhase.ADDING
        if checkpoint.properties.is_savepoint:
            self._on_completed(pending, checkpoint, ())
            return
        self._io.submit(
            lambda: self._store.add_checkpoint(checkpoint),
            lambda dropped: self._on_completed(pending, checkpoint, dropped),
            lambda error: self._on_failed(pending, error),
        )

    def _not_written(self, pending: PendingCheckpoint, error: Exception) -> None:
        if pending.is_aborted:
            self._on_abandoned(pending)
        else:
            self._on_failed(pending, error)
