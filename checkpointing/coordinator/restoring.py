"""What a job continues from: what its store holds, what else is in its directory, the snapshot it was given.

A snapshot that the job was submitted with is *unclaimed* (its owner's: never touched, and the next checkpoint is a full
one that needs nothing of it) or *claimed* (the job's own from now on: subsumed in its turn, and then removed).
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
    """Used before the first trigger of an attempt, but for `swept` and `unused`."""

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
        """Read the store and count the references of what it holds; the result is the newest retained checkpoint.

        To be called before anything is triggered. If the store raises an error, the job must not start.
        """
        recovered: Future[CompletedCheckpoint | None] = running_future()
        self._context.outbox.do(ReadStore(recovered))
        return recovered

    def found(self, checkpoints: Sequence[CompletedCheckpoint], first_id: int | None = None) -> None:
        """Complete ones in the job's directory that the store does not know: their files are not ours to remove.

        Somebody may restore from them; ids continue after them. But one that is newer than what the store holds is this
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
        """Forget these of the found ones: they were removed."""
        self._endings.found_ids.difference_update(checkpoint_ids)
        self._endings.never_stored = tuple(
            orphan for orphan in self._endings.never_stored if orphan.checkpoint_id not in checkpoint_ids
        )
        for checkpoint_id in checkpoint_ids:
            self._cleaner.release_shared(checkpoint_id)

    def unused(self, files: Sequence[StateFile]) -> None:
        """Remove shared files that no found checkpoint needs, except those that a pending one needs."""
        self._endings.discard_unused(files)

    def claim(self, checkpoint: CompletedCheckpoint, *, lies_elsewhere: bool) -> Future[CompletedCheckpoint | None]:
        """Make the snapshot that the job is restored from the job's own; before `restored`.

        From then on it is retained, subsumed in its turn, and then removed with what nothing else refers to. After an
        error of the counter or the store it may be in the store all the same; another `recover` shows it.

        Args:
            lies_elsewhere: not in the job's own directory.
        """
        recovered: Future[CompletedCheckpoint | None] = running_future()
        if lies_elsewhere:
            properties = checkpoint.properties.claimed_by_job_with(self._context.config.retention)
            checkpoint = replace(checkpoint, properties=properties)
        self._context.outbox.do(AddClaimed(checkpoint, recovered))
        return recovered

    def store_read(self, step: ReadStore | AddClaimed, checkpoints: tuple[CompletedCheckpoint, ...]) -> None:
        """Continue the ids after them, also if the counter is behind: an older state must not look like the newest."""
        for checkpoint in checkpoints:
            self._pipeline.raise_ids_to(checkpoint.checkpoint_id + 1)
            if not checkpoint.properties.claimed:  # the files of a claimed one are in no pool of ours
                self._cleaner.register_shared(checkpoint.checkpoint_id, checkpoint.files)
        self._endings.retained = checkpoints
        self._context.outbox.put(Resolve(step.recovered, checkpoints[-1] if checkpoints else None))

    def store_not_read(self, step: ReadStore | AddClaimed, error: Exception) -> None:
        self._context.outbox.put(Reject(step.recovered, error))

    def restored(self, checkpoint: CompletedCheckpoint, *, is_savepoint: bool) -> None:
        """A driver was started from `checkpoint`. `is_savepoint`: the one the job was submitted with, not claimed.

        From that, or from another job's checkpoint, ids continue after it and the next checkpoint is a full one.
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
        """The driver was started from an unclaimed snapshot and nothing else, here or under another job manager.

        Ids continue after it, and the next checkpoint is a full one.
        """
        self._pipeline.raise_ids_to(checkpoint_id + 1)
        self._endings.full_snapshot_owed = True
