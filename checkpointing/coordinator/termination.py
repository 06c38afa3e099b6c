"""The end of a coordinator: close the store and the counter, remove what need not be kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.coordinator.cleaning import CheckpointsCleaner
from checkpointing.coordinator.ports import (
    CheckpointIDCounter,
    CheckpointLocation,
    CompletedCheckpointStore,
    IoExecutor,
)
from checkpointing.coordinator.stats import CheckpointStatsTracker
from checkpointing.jobs.status import JobStatus

logger = logging.getLogger(__name__)


class CoordinatorTermination:
    """Run once, when nothing else of the coordinator is under way."""

    def __init__(
        self,
        *,
        store: CompletedCheckpointStore,
        id_counter: CheckpointIDCounter,
        cleaner: CheckpointsCleaner,
        stats: CheckpointStatsTracker,
        io: IoExecutor,
    ) -> None:
        self._store = store
        self._id_counter = id_counter
        self._cleaner = cleaner
        self._stats = stats
        self._io = io
        self._error: Exception | None = None

    def run(self, status: JobStatus, on_done: Callable[[Exception | None], None]) -> None:
        """Store first: once it is closed its checkpoints cannot be found again, so files go or stay right then."""
        self._io.submit(
            lambda: self._store.shutdown(status),
            lambda dropped: self._store_closed(status, dropped, on_done),
            lambda error: self._failed("store", error, lambda: self._close_counter(status, on_done)),
        )

    def _store_closed(
        self, status: JobStatus, dropped: Sequence[CompletedCheckpoint], on_done: Callable[[Exception | None], None]
    ) -> None:
        for checkpoint in dropped:
            if checkpoint.properties.discard_on(status):
                self._cleaner.discard(
                    checkpoint.checkpoint_id, CheckpointLocation(checkpoint.location, checkpoint.shared_location)
                )
                self._stats.report_discarded(checkpoint.checkpoint_id)
        if status.globally_terminal or dropped:
            self._cleaner.remove_condemned()
        # Else another job manager may lead already, and its checkpoints may rely on what is in the shared pool.
        self._close_counter(status, on_done)

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
