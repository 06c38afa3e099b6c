"""The state that a job continues from: its store, other checkpoints in its directory, and the given snapshot.

A snapshot that the job was submitted with is *unclaimed* or *claimed*. An unclaimed one belongs to its owner and is
never changed, and the next checkpoint is a full one that needs none of its files. A claimed one belongs to the job from
now on. Newer checkpoints subsume it, and then it is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import AddClaimed, ReadStore, Reject, Resolve
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.requests import running_future
from checkpointing.coordinator.triggering import TriggerPipeline
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile


class CheckpointRestoring:
    """Prepares the state before the first trigger of an attempt. Only `swept` and `unused` are used later."""

    def __init__(
        self,
        context: CoordinatorContext,
        endings: CheckpointEndings,
        cleaner: CheckpointsCleaner,
        pipeline: TriggerPipeline,
    ) -> None:
        self._context = context
        self._endings = endings
        self._cleaner = cleaner
        self._pipeline = pipeline

    def recover(self) -> Future[CompletedCheckpoint | None]:
        """Read the store and count references to shared files. The result is the newest retained checkpoint.

        Call it before anything is triggered. If the store raises an error, the job must not start.
        """
        recovered: Future[CompletedCheckpoint | None] = running_future()
        self._context.outbox.do(ReadStore(recovered))
        return recovered

    def found(self, checkpoints: Sequence[CompletedCheckpoint], first_id: int | None = None) -> None:
        """Register complete checkpoints in the job's directory that the store does not know.

        Their files must not be removed.

        A person may restore from them, and new IDs continue after theirs. A checkpoint that is newer than the store's
        newest belongs to this job: a crash came between its metadata and the store. It is kept until a newer one is
        stored. With an empty store this holds for checkpoints of this run of the job, whose IDs begin with `first_id`
        (None: unknown).
        """
        of_earlier_runs = None if first_id is None else first_id - 1
        retained = (c.checkpoint_id for c in self._endings.retained if not c.properties.claimed)
        newest = max(retained, default=of_earlier_runs)
        for checkpoint in checkpoints:
            self._cleaner.register_shared(checkpoint.checkpoint_id, checkpoint.files)
            self._pipeline.raise_ids_to(checkpoint.checkpoint_id + 1)
        self._endings.found_ids = {checkpoint.checkpoint_id for checkpoint in checkpoints}
        self._endings.never_stored = tuple(c for c in checkpoints if newest is not None and c.checkpoint_id > newest)

    def swept(self, checkpoint_ids: Sequence[int]) -> None:
        """Forget found checkpoints that were removed."""
        self._endings.found_ids.difference_update(checkpoint_ids)
        self._endings.never_stored = tuple(
            orphan for orphan in self._endings.never_stored if orphan.checkpoint_id not in checkpoint_ids
        )
        for checkpoint_id in checkpoint_ids:
            self._cleaner.release_shared(checkpoint_id)

    def unused(self, files: Sequence[StateFile]) -> None:
        """Remove shared files that no found checkpoint needs, except those that a pending one needs."""
        self._endings.discard_unused(files)

    def claim(
        self, checkpoint: CompletedCheckpoint, *, is_outside_job_directory: bool
    ) -> Future[CompletedCheckpoint | None]:
        """Make the restored snapshot the job's own. Call it before `restored`.

        From then on it is retained until newer checkpoints subsume it, and then removed with all files that nothing
        else refers to. After an error of the counter or the store, the store may nevertheless have it; another
        `recover` shows it.

        Args:
            is_outside_job_directory: the snapshot is outside of the job's own directory.
        """
        recovered: Future[CompletedCheckpoint | None] = running_future()
        if is_outside_job_directory:
            properties = checkpoint.properties.claimed_by_job_with(self._context.config.retention)
            checkpoint = replace(checkpoint, properties=properties)
        self._context.outbox.do(AddClaimed(checkpoint, recovered))
        return recovered

    def store_read(self, step: ReadStore | AddClaimed, checkpoints: tuple[CompletedCheckpoint, ...]) -> None:
        """Continue the IDs after the stored ones, even if the counter is behind.

        Old state must not look like the newest.
        """
        for checkpoint in checkpoints:
            self._pipeline.raise_ids_to(checkpoint.checkpoint_id + 1)
            if not checkpoint.properties.claimed:  # a claimed checkpoint has its files in another pool
                self._cleaner.register_shared(checkpoint.checkpoint_id, checkpoint.files)
        self._endings.retained = checkpoints
        self._context.outbox.put(Resolve(step.recovered, checkpoints[-1] if checkpoints else None))

    def store_not_read(self, step: ReadStore | AddClaimed, error: Exception) -> None:
        self._context.outbox.put(Reject(step.recovered, error))

    def restored(self, checkpoint: CompletedCheckpoint, *, is_savepoint: bool) -> None:
        """Report that a driver was started from `checkpoint`.

        `is_savepoint`: it is the unclaimed snapshot of the job's submission. After such a snapshot, or another job's
        checkpoint, IDs continue after its ID and the next checkpoint is a full one.
        """
        self._context.stats.report_restored(
            checkpoint.checkpoint_id,
            restore_timestamp=self._context.clock.now_ms(),
            is_savepoint=is_savepoint,
            external_path=checkpoint.location,
        )
        is_ours = any(retained.location == checkpoint.location for retained in self._endings.retained)
        if is_savepoint or (checkpoint.job_id != self._context.job.job_id and not is_ours):
            self.continue_from_unclaimed(checkpoint.checkpoint_id)

    def continue_from_unclaimed(self, checkpoint_id: int) -> None:
        """Continue after an unclaimed snapshot from which the driver was started, here or under another job manager.

        IDs continue after its ID, and the next checkpoint is a full one.
        """
        self._pipeline.raise_ids_to(checkpoint_id + 1)
        self._endings.full_snapshot_owed = True
