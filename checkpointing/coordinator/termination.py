"""The end of a coordinator: close the store and the counter, remove what need not be kept, empty directories too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.ports import (
    CheckpointIDCounter,
    CheckpointStorage,
    CompletedCheckpointStore,
    IoExecutor,
)
from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.status import JobStatus

logger = logging.getLogger(__name__)


class DiscardUncertain(Protocol):
    """`CheckpointEndings.discard_uncertain`."""

    def __call__(self, status: JobStatus, *, is_saved: bool) -> None: ...


class CoordinatorTermination:
    """Run once, when nothing else of the coordinator is under way."""

    def __init__(
        self,
        *,
        store: CompletedCheckpointStore,
        id_counter: CheckpointIDCounter,
        storage: CheckpointStorage,
        cleaner: CheckpointsCleaner,
        discard_uncertain: DiscardUncertain,
        stats: CheckpointStatsTracker,
        io: IoExecutor,
    ) -> None:
        self._store = store
        self._id_counter = id_counter
        self._storage = storage
        self._cleaner = cleaner
        self._discard_uncertain = discard_uncertain
        self._stats = stats
        self._io = io
        self._error: Exception | None = None

    def run(self, status: JobStatus, on_done: Callable[[Exception | None], None], *, is_saved: bool) -> None:
        """Store first: once it is closed its checkpoints cannot be found again, so files go or stay right then."""
        self._cleaner.try_for_the_last_time()
        self._io.submit(
            lambda: self._store.shutdown(status),
            lambda dropped: self._store_closed(status, dropped, on_done, is_saved=is_saved),
            lambda error: self._failed("store", error, lambda: self._close_counter(status, on_done)),
        )

    def _store_closed(
        self,
        status: JobStatus,
        dropped: Sequence[CompletedCheckpoint],
        on_done: Callable[[Exception | None], None],
        *,
        is_saved: bool,
    ) -> None:
        has_finished = status is JobStatus.FINISHED and is_saved
        for checkpoint in dropped:
            is_spared = not has_finished and _is_all_there_is(checkpoint, dropped)
            if checkpoint.properties.discard_on(status, is_saved=is_saved) and not is_spared:
                self._cleaner.discard_completed(checkpoint)
                self._stats.report_discarded(checkpoint.checkpoint_id)
        if status.globally_terminal:
            self._discard_uncertain(status, is_saved=is_saved)
        # Else another job manager may lead already, and its checkpoints may rely on what is in the shared pool.
        owns_the_directory = status.globally_terminal or bool(dropped)
        if owns_the_directory:
            self._cleaner.remove_condemned()
        self._close_counter(status, partial(self._ended, on_done, owns_the_directory))

    def _ended(
        self, on_done: Callable[[Exception | None], None], owns_the_directory: bool, error: Exception | None
    ) -> None:
        if not owns_the_directory:
            on_done(error)
            return
        self._io.submit(
            self._storage.remove_empty_directories,
            lambda _: on_done(error),
            lambda failure: self._failed("directory", failure, lambda: on_done(error or failure)),
        )

    def _close_counter(self, status: JobStatus, on_done: Callable[[Exception | None], None]) -> None:
        self._io.submit(
            lambda: self._id_counter.shutdown(status),
            lambda _: self._await_cleaning(on_done),
            lambda error: self._failed("id counter", error, lambda: self._await_cleaning(on_done)),
        )

    def _failed(self, what: str, error: Exception, proceed: Callable[[], None]) -> None:
        logger.warning("the checkpoint %s could not be closed: %s", what, error)
        self._error = self._error or error
        proceed()

    def _await_cleaning(self, on_done: Callable[[Exception | None], None]) -> None:
        self._cleaner.when_idle(lambda: on_done(self._error))


def _is_all_there_is(checkpoint: CompletedCheckpoint, dropped: Sequence[CompletedCheckpoint]) -> bool:
    """A claimed snapshot that the job never got beyond goes back to its owner, lest a failed start cost the state."""
    return checkpoint.properties.claimed and checkpoint is dropped[-1]
