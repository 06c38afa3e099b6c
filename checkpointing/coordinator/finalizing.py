"""The last steps of a fully acknowledged checkpoint: metadata made durable, then the store.

The two blocking steps run through the IoExecutor; between them the checkpoint may be aborted, during the second not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from checkpointing.coordinator.pending import PendingCheckpoint, PendingPhase
from checkpointing.coordinator.ports import CheckpointStorage, CompletedCheckpointStore, IoExecutor
from checkpointing.model.checkpoint import CompletedCheckpoint


@dataclass(frozen=True)
class Added:
    """The store after a checkpoint was added: what it holds, oldest first, and what left it and is to be discarded.

    One that left and is in neither (the store could not let go of it) keeps its files. `withdrawn`: ids of which it was
    not known whether the store has them; now it has not.
    """

    retained: tuple[CompletedCheckpoint, ...]
    dropped: Sequence[CompletedCheckpoint]
    withdrawn: Sequence[int] = ()


Completed = Callable[[PendingCheckpoint, CompletedCheckpoint, Added | None], None]
Failed = Callable[[PendingCheckpoint, Exception], None]
Abandoned = Callable[[PendingCheckpoint], None]


class CheckpointFinalizer:
    """Exactly one of the three callbacks follows each `finalize`.

    `on_completed(pending, checkpoint, added)`: durable and in the store; a savepoint is not in it, `added` is None.
    `on_failed(pending, error)`: not completed. `on_abandoned(pending)`: aborted meanwhile, its files may go now.
    `uncertain()`: ids of earlier ones that the store may or may not have.
    """

    def __init__(
        self,
        *,
        storage: CheckpointStorage,
        store: CompletedCheckpointStore,
        io: IoExecutor,
        uncertain: Callable[[], Sequence[int]],
        on_completed: Completed,
        on_failed: Failed,
        on_abandoned: Abandoned,
    ) -> None:
        self._storage = storage
        self._store = store
        self._io = io
        self._uncertain = uncertain
        self._on_completed = on_completed
        self._on_failed = on_failed
        self._on_abandoned = on_abandoned
        self._waiting: dict[int, tuple[PendingCheckpoint, CompletedCheckpoint]] = {}
        self._is_adding = False

    def finalize(self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint) -> None:
        """Write the metadata of `checkpoint`, which `pending.finalize` gave."""
        self._io.submit(
            lambda: self._storage.write_metadata(checkpoint),
            partial(self._written, pending, checkpoint),
            lambda error: self._not_written(pending, error),
        )

    def _written(self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, metadata_size: int) -> None:
        pending.metadata_size = metadata_size
        if pending.is_aborted:
            self._on_abandoned(pending)
        elif checkpoint.properties.is_savepoint:
            self._begin_adding(pending)
            self._on_completed(pending, checkpoint, None)
        else:
            self._waiting[checkpoint.checkpoint_id] = (pending, checkpoint)
            self._add_next()

    def _add_next(self) -> None:
        """One at a time and the oldest first, so that the store's order is that of the ids."""
        while self._waiting and not self._is_adding:
            pending, checkpoint = self._waiting.pop(min(self._waiting))
            if pending.is_aborted:
                self._on_abandoned(pending)
                continue
            self._begin_adding(pending)
            self._is_adding = True
            self._io.submit(
                partial(self._add, checkpoint, tuple(self._uncertain())),
                partial(self._added, pending, checkpoint),
                partial(self._not_added, pending),
            )

    def _begin_adding(self, pending: PendingCheckpoint) -> None:
        pending.cancel_expiry()
        pending.phase = PendingPhase.ADDING

    def _added(self, pending: PendingCheckpoint, checkpoint: CompletedCheckpoint, added: Added) -> None:
        self._is_adding = False
        self._on_completed(pending, checkpoint, added)
        self._add_next()

    def _not_added(self, pending: PendingCheckpoint, error: Exception) -> None:
        self._is_adding = False
        try:
            self._on_failed(pending, error)
        finally:
            self._add_next()

    def _add(self, checkpoint: CompletedCheckpoint, uncertain: Sequence[int]) -> Added:
        """First the new one: until then one that the store may have could be the newest there is."""
        dropped = self._store.add_checkpoint(checkpoint)
        withdrawn = tuple(old for old in uncertain if self._store.withdraw(old))
        return Added(tuple(self._store.checkpoints), dropped, withdrawn)

    def _not_written(self, pending: PendingCheckpoint, error: Exception) -> None:
        if pending.is_aborted:
            self._on_abandoned(pending)
        else:
            self._on_failed(pending, error)
