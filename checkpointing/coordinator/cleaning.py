"""Removing what no checkpoint needs any more: Flink's CheckpointsCleaner, with shared files kept by content.

A checkpoint's own directory goes at once. A shared file that lost its last reference is only *condemned*: a checkpoint
on its way may have seen it in the pool and may be about to refer to it again. Condemned files are removed when no
checkpoint that uses the pool is on its way, and no new one is triggered until the removal is over; a file that is
acknowledged again before that is reprieved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from checkpointing.coordinator.ports import (
    CheckpointLocation,
    CheckpointStorage,
    IoExecutor,
    SharedStateRegistry,
)
from checkpointing.messages import StateFile

logger = logging.getLogger(__name__)


class CheckpointsCleaner:
    """Used from the coordinator's thread only; `on_cleaned` follows each removal that ended, well or not."""

    def __init__(self, *, storage: CheckpointStorage, registry: SharedStateRegistry, io: IoExecutor) -> None:
        self._storage = storage
        self._registry = registry
        self._io = io
        self._num_discarding = 0
        self._num_waiting = 0
        self._condemned: dict[str, StateFile] = {}
        self._removing_shared = False
        self._listeners: list[Callable[[], None]] = []
        self._when_idle: list[Callable[[], None]] = []

    def add_listener(self, on_cleaned: Callable[[], None]) -> None:
        self._listeners.append(on_cleaned)

    @property
    def num_cleaning(self) -> int:
        """Checkpoints whose cleaning has not ended: the back-pressure of Flink's decider."""
        return self._num_discarding + self._num_waiting

    @property
    def is_removing_shared(self) -> bool:
        """While True no checkpoint may be triggered: it could rely on a file that is being removed."""
        return self._removing_shared

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback`, perhaps at once, when no removal is under way."""
        self._when_idle.append(callback)
        self._report_idle()

    def register_shared(self, checkpoint_id: int, files: Sequence[StateFile]) -> None:
        """Count the references of `checkpoint_id` to its shared files; a condemned one is reprieved."""
        self._registry.register(checkpoint_id, files)
        if self._condemned:
            for file in files:
                if file.shared:
                    self._condemned.pop(file.location, None)

    def release_shared(self, checkpoint_id: int) -> None:
        """Drop the references of `checkpoint_id`; what nothing refers to any more is condemned."""
        unreferenced = self._registry.release(checkpoint_id)
        if unreferenced:
            self._num_waiting += 1
            self._condemned.update((file.location, file) for file in unreferenced)

    def discard(self, checkpoint_id: int, location: CheckpointLocation | None) -> None:
        """Remove the checkpoint's own directory, if it has one yet, and drop its references to shared files."""
        self.release_shared(checkpoint_id)
        if location is not None:
            self.discard_location(location)

    def discard_location(self, location: CheckpointLocation) -> None:
        self._num_discarding += 1
        self._io.submit(
            lambda: self._storage.discard_location(location),
            lambda _: self._discarded(),
            lambda error: self._discard_failed(location, error),
        )

    def remove_condemned(self) -> None:
        """Remove all condemned files. Only when no checkpoint that uses the shared pool is on its way."""
        if self._removing_shared or not self._condemned:
            return
        files = tuple(self._condemned.values())
        self._condemned.clear()
        self._num_waiting = 0
        self._removing_shared = True
        self._io.submit(
            lambda: self._storage.discard_shared(files),
            lambda _: self._shared_removed(),
            lambda error: self._removal_failed(files, error),
        )

    def _discarded(self) -> None:
        self._num_discarding -= 1
        self._notify()

    def _discard_failed(self, location: CheckpointLocation, error: Exception) -> None:
        logger.warning("checkpoint directory %s could not be removed and is left behind: %s", location.directory, error)
        self._discarded()

    def _shared_removed(self) -> None:
        self._removing_shared = False
        self._notify()

    def _removal_failed(self, files: Sequence[StateFile], error: Exception) -> None:
        """Tried again with the next removal; it does not count as cleaning, lest a broken disk stop all checkpoints."""
        logger.warning("%d shared files could not be removed, to be tried again: %s", len(files), error)
        for file in files:
            self._condemned.setdefault(file.location, file)
        self._shared_removed()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
        self._report_idle()

    def _report_idle(self) -> None:
        if self._num_discarding == 0 and not self._removing_shared:
            callbacks, self._when_idle = self._when_idle, []
            for callback in callbacks:
                callback()
