"""What a job goes on from: what its store holds, what else lies in its directory, the snapshot it was given.

A snapshot that the job was submitted with is *unclaimed* (its owner's: never touched, and the next checkpoint is a full
one that needs nothing of it) or *claimed* (the job's own from now on: subsumed in its turn, and then removed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from checkpointing.clock import Clock
from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.ports import CheckpointIDCounter, CompletedCheckpointStore, IoExecutor
from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.coordinator.triggering import TriggerPipeline
from checkpointing.model.checkpoint import CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import StateFile


class CheckpointRestoring:
    """Used before the first trigger of an attempt, but for `swept` and `unused`."""

    def __init__(
        self,
        *,
        job_id: str,
        retention: RetentionPolicy,
        store: CompletedCheckpointStore,
        id_counter: CheckpointIDCounter,
        endings: CheckpointEndings,
        cleaner: CheckpointsCleaner,
        pipeline: TriggerPipeline,
        stats: CheckpointStatsTracker,
        clock: Clock,
        io: IoExecutor,
    ) -> None:
        self._job_id = job_id
        self._retention = retention
        self._store = store
        self._id_counter = id_counter
        self._endings = endings
        self._cleaner = cleaner
        self._pipeline = pipeline
        self._stats = stats
        self._clock = clock
        self._io = io

    def recover(self, on_done: Callable[[], None], on_error: Callable[[Exception], None]) -> None:
        """Read the store and count the references of what it holds."""

        def read() -> tuple[CompletedCheckpoint, ...]:
            self._store.recover()
            return tuple(self._store.checkpoints)

        def recovered(checkpoints: tuple[CompletedCheckpoint, ...]) -> None:
            self._retain(checkpoints)
            on_done()

        self._io.submit(read, recovered, on_error)

    def found(self, checkpoints: Sequence[CompletedCheckpoint], first_id: int | None = None) -> None:
        """Complete ones in the job's directory that the store does not know: their files are not ours to remove.

        Somebody may restore from them; ids go on after them. But one that is newer than what the store holds is this
        job's: a crash came between its metadata and the store. It is kept until a newer one is stored. So is one of an
        empty store if it is of this life of the job, whose ids begin with `first_id` (None: that is not known).
        """
        of_earlier_lives = None if first_id is None else first_id - 1
        retained = (c.checkpoint_id for c in self._endings.retained if not c.properties.claimed)
        newest = max(retained, default=of_earlier_lives)
        for checkpoint in checkpoints:
            self._cleaner.register_shared(checkpoint.checkpoint_id, checkpoint.files)
            self._pipeline.raise_ids_to(checkpoint.checkpoint_id + 1)
        self._endings.found_ids = {checkpoint.checkpoint_id for checkpoint in checkpoints}
        self._endings.never_stored = tuple(c for c in checkpoints if newest is not None and c.checkpoint_id > newest)

    def swept(self, checkpoint_ids: Sequence[int]) -> None:
        """These, of those found, are gone."""
        self._endings.found_ids.difference_update(checkpoint_ids)
        self._endings.never_stored = tuple(
            orphan for orphan in self._endings.never_stored if orphan.checkpoint_id not in checkpoint_ids
        )
        for checkpoint_id in checkpoint_ids:
            self._cleaner.release_shared(checkpoint_id)

    def unused(self, files: Sequence[StateFile]) -> None:
        """No checkpoint that was found needs these shared files: they go, unless one that is on its way does."""
        self._endings.discard_unused(files)

    def claim(
        self,
        checkpoint: CompletedCheckpoint,
        on_done: Callable[[], None],
        on_error: Callable[[Exception], None],
        *,
        lies_elsewhere: bool,
    ) -> None:
        """Make the snapshot that the job is restored from the job's own; before `restored`.

        From then on it is retained, subsumed in its turn, and then removed with what nothing else refers to.
        `lies_elsewhere`: not in the job's own directory. `on_error` gets what the counter or the store raised: it may
        be in the store all the same, another `recover` tells.
        """
        ours = _claimed(checkpoint, self._retention) if lies_elsewhere else checkpoint

        def add() -> tuple[CompletedCheckpoint, ...]:
            # The ids first: once it is in the store, no checkpoint with a lower id may ever follow it there.
            if self._id_counter.get() <= checkpoint.checkpoint_id:
                self._id_counter.set_count(checkpoint.checkpoint_id + 1)
            self._store.add_checkpoint(ours)
            return tuple(self._store.checkpoints)

        def added(checkpoints: tuple[CompletedCheckpoint, ...]) -> None:
            self._retain(checkpoints)
            on_done()

        self._io.submit(add, added, on_error)

    def restored(self, checkpoint: CompletedCheckpoint, *, is_savepoint: bool) -> None:
        """A driver was started from it."""
        self._stats.report_restored(
            checkpoint.checkpoint_id,
            restore_timestamp=self._clock.now_ms(),
            is_savepoint=is_savepoint,
            external_path=checkpoint.location,
        )
        is_ours = any(retained.location == checkpoint.location for retained in self._endings.retained)
        if is_savepoint or (checkpoint.job_id != self._job_id and not is_ours):
            self.goes_on_from_unclaimed(checkpoint.checkpoint_id)

    def goes_on_from_unclaimed(self, checkpoint_id: int) -> None:
        """An unclaimed snapshot is all that the driver was ever started from, be it here or under another job manager.

        Ids go on after it, and the next checkpoint is a full one.
        """
        self._pipeline.raise_ids_to(checkpoint_id + 1)
        self._endings.full_snapshot_owed = True

    def _retain(self, checkpoints: tuple[CompletedCheckpoint, ...]) -> None:
        """Ids go on after them whatever became of the counter: an older state must never look like the newest."""
        for checkpoint in checkpoints:
            self._pipeline.raise_ids_to(checkpoint.checkpoint_id + 1)
            if not checkpoint.properties.claimed:  # the files of a claimed one lie in no pool of ours
                self._cleaner.register_shared(checkpoint.checkpoint_id, checkpoint.files)
        self._endings.retained = checkpoints


def _claimed(checkpoint: CompletedCheckpoint, retention: RetentionPolicy) -> CompletedCheckpoint:
    return replace(checkpoint, properties=checkpoint.properties.claimed_by_job_with(retention))
