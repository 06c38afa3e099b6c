"""The end of a coordinator: it closes the store and the counter, and removes unneeded files and empty directories."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future

from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.context import CoordinatorContext
from checkpointing.coordinator.effects import CloseCounter, CloseStore, RemoveEmptyDirectories, Resolve
from checkpointing.coordinator.ending import CheckpointEndings
from checkpointing.coordinator.requests import running_future
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.status import JobStatus

logger = logging.getLogger(__name__)


class CoordinatorTermination:
    """Ends a coordinator.

    Begins when no other step of the coordinator is running, and ends when no removal is running.
    """

    def __init__(self, context: CoordinatorContext, endings: CheckpointEndings, cleaner: CheckpointsCleaner) -> None:
        self._outbox = context.outbox
        self._stats = context.stats
        self._endings = endings
        self._cleaner = cleaner
        self._first: CloseStore | None = None
        self._awaits_removals = False
        self._owns_directory = False
        self._error: Exception | None = None
        self._closed: Future[Exception | None] = running_future()

    def request(self, status: JobStatus, *, is_saved: bool) -> Future[Exception | None]:
        """Request the end. The store is closed first: after that, its checkpoints cannot be found again.

        So their files are removed or kept at that moment.
        """
        self._first = CloseStore(status, is_saved)
        return self._closed

    def abandon(self) -> None:
        """Cancel an end that has not started."""
        self._first = None

    def proceed(self) -> None:
        """Take the next step if the steps before it have ended."""
        if self._first is not None and self._outbox.num_steps == self._cleaner.num_removals:
            self._cleaner.retry_finally()
            self._outbox.do(self._first)
            self._first = None
        elif self._awaits_removals and self._cleaner.num_removals == 0:
            self._awaits_removals = False
            if self._owns_directory:
                self._outbox.do(RemoveEmptyDirectories())
            else:
                self._end()

    def store_closed(self, step: CloseStore, dropped: Sequence[CompletedCheckpoint]) -> None:
        has_finished = step.status is JobStatus.FINISHED and step.is_saved
        for checkpoint in dropped:
            is_spared = not has_finished and _is_only_snapshot(checkpoint, dropped)
            if checkpoint.properties.discard_on(step.status, is_saved=step.is_saved) and not is_spared:
                self._cleaner.discard_completed(checkpoint)
                self._stats.report_discarded(checkpoint.checkpoint_id)
        if step.status.globally_terminal:
            self._endings.discard_uncertain(step.status, is_saved=step.is_saved)
        # Otherwise another job manager may already lead, and its checkpoints may need files in the shared pool.
        self._owns_directory = step.status.globally_terminal or bool(dropped)
        if self._owns_directory:
            self._cleaner.remove_unreferenced()
        self._outbox.do(CloseCounter(step.status))

    def store_not_closed(self, step: CloseStore, error: Exception) -> None:
        self._record_error("store", error)
        self._outbox.do(CloseCounter(step.status))

    def counter_closed(self, step: CloseCounter, _: None) -> None:
        self._awaits_removals = True

    def counter_not_closed(self, step: CloseCounter, error: Exception) -> None:
        self._record_error("id counter", error)
        self._awaits_removals = True

    def emptied(self, step: RemoveEmptyDirectories, _: None) -> None:
        self._end()

    def not_emptied(self, step: RemoveEmptyDirectories, error: Exception) -> None:
        self._record_error("directory", error)
        self._end()

    def _end(self) -> None:
        self._outbox.put(Resolve(self._closed, self._error))

    def _record_error(self, what: str, error: Exception) -> None:
        logger.warning("the checkpoint %s could not be closed: %s", what, error)
        self._error = self._error or error


def _is_only_snapshot(checkpoint: CompletedCheckpoint, dropped: Sequence[CompletedCheckpoint]) -> bool:
    """Return whether the job never completed a checkpoint after this claimed snapshot.

    Such a snapshot goes back to its owner, so that a failed start does not cost the state.
    """
    return checkpoint.properties.claimed and checkpoint is dropped[-1]
