"""Removing what no checkpoint needs any more: Flink's CheckpointsCleaner, with shared files kept by content.

A checkpoint's own directory goes at once. A shared file that lost its last reference is only *condemned*: a checkpoint
on its way may have seen it in the pool and may be about to refer to it again. Condemned files are removed when no
checkpoint that uses the pool is on its way, and no new one is triggered until the removal is over; a file that is
acknowledged again before that is reprieved.

A removal that fails is tried again, less and less often, and once more at the end; then it is reported. It does not
count as cleaning meanwhile, lest a broken disk stop all checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from checkpointing.coordinator.ports import (
    Cancellable,
    CheckpointLocation,
    CheckpointStorage,
    IoExecutor,
    Timer,
)
from checkpointing.coordinator.shared_state import ReferenceCountingRegistry
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile

logger = logging.getLogger(__name__)

RETRIES_AFTER_S = (1.0, 4.0, 15.0, 60.0, 240.0, 900.0)

LeftBehind = Callable[[str, Exception], None]
"""Gets what could not be removed, in words, and why."""


class CheckpointsCleaner:
    """Used from the coordinator's thread only; the listeners follow each removal that ended, well or not."""

    def __init__(
        self,
        *,
        storage: CheckpointStorage,
        registry: ReferenceCountingRegistry,
        io: IoExecutor,
        timer: Timer,
        left_behind: LeftBehind | None = None,
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._io = io
        self._timer = timer
        self._left_behind = left_behind or _log_left_behind
        self._num_discarding = 0
        self._num_waiting = 0
        self._condemned: dict[str, StateFile] = {}
        self._removing_shared = False
        self._shared_failures = 0
        self._shared_retry: Cancellable | None = None
        self._failed: dict[str, _FailedRemoval] = {}
        self._is_ending = False
        self._listeners: list[Callable[[], None]] = []
        self._when_idle: list[Callable[[], None]] = []

    def add_listener(self, on_cleaned: Callable[[], None]) -> None:
        self._listeners.append(on_cleaned)

    @property
    def num_cleaning(self) -> int:
        """Checkpoints whose cleaning has not ended: the back-pressure of Flink's decider."""
        return self._num_discarding + (self._num_waiting if self._shared_retry is None else 0)

    @property
    def is_removing_shared(self) -> bool:
        """While True no checkpoint may be triggered: it could rely on a file that is being removed."""
        return self._removing_shared

    def try_for_the_last_time(self) -> None:
        """What failed is tried at once; from now on a removal that fails is reported, not tried again."""
        self._is_ending = True
        if self._shared_retry is not None:
            self._shared_retry.cancel()
            self._shared_retry = None
        for directory, removal in list(self._failed.items()):
            self._remove(directory, removal.work)

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

    def discard_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Remove what is the job's own, claimed or made by it."""
        if checkpoint.properties.claimed:
            self._remove(checkpoint.location, partial(self._storage.discard_claimed, checkpoint.location))
        else:
            location = CheckpointLocation(checkpoint.location, checkpoint.shared_location)
            self.discard(checkpoint.checkpoint_id, location)

    def discard(self, checkpoint_id: int, location: CheckpointLocation | None) -> None:
        """Remove the checkpoint's own directory, if it has one yet, and drop its references to shared files."""
        self.release_shared(checkpoint_id)
        if location is not None:
            self.discard_location(location)

    def discard_location(self, location: CheckpointLocation) -> None:
        self._remove(location.directory, partial(self._storage.discard_location, location))

    def remove_condemned(self) -> None:
        """Remove all condemned files. Only when no checkpoint that uses the shared pool is on its way."""
        if self._removing_shared or not self._condemned or self._shared_retry is not None:
            return
        files = tuple(self._condemned.values())
        self._condemned.clear()
        self._num_waiting = 0
        self._removing_shared = True
        self._io.submit(
            lambda: self._storage.discard_shared(files),
            lambda _: self._shared_removed(),
            lambda error: self._shared_failed(files, error),
        )

    # Directories

    def _remove(self, directory: str, work: Callable[[], None], failures: int = 0) -> None:
        if (failed := self._failed.pop(directory, None)) is not None:
            failed.cancel()
        self._num_discarding += 1
        self._io.submit(
            work, lambda _: self._removed(), lambda error: self._not_removed(directory, work, failures, error)
        )

    def _removed(self) -> None:
        self._num_discarding -= 1
        self._notify()

    def _not_removed(self, directory: str, work: Callable[[], None], failures: int, error: Exception) -> None:
        retry: Cancellable | None = None
        if self._is_ending or failures >= len(RETRIES_AFTER_S):
            self._left_behind(f"The checkpoint directory {directory}", error)
        else:
            logger.warning("checkpoint directory %s could not be removed, to be tried again: %s", directory, error)
            retry = self._timer.call_later(
                RETRIES_AFTER_S[failures], lambda: self._remove(directory, work, failures + 1)
            )
        self._failed[directory] = _FailedRemoval(work, retry)
        self._removed()

    # The shared pool

    def _shared_removed(self) -> None:
        self._shared_failures = 0
        self._end_shared_removal()

    def _shared_failed(self, files: Sequence[StateFile], error: Exception) -> None:
        if self._is_ending:
            self._left_behind(f"{len(files)} files of the shared pool", error)
        else:
            logger.warning("%d shared files could not be removed, to be tried again: %s", len(files), error)
            delay = RETRIES_AFTER_S[min(self._shared_failures, len(RETRIES_AFTER_S) - 1)]
            self._shared_failures += 1
            self._shared_retry = self._timer.call_later(delay, self._retry_shared)
            for file in files:
                self._condemned.setdefault(file.location, file)
        self._end_shared_removal()

    def _retry_shared(self) -> None:
        """The listeners know whether it is safe now."""
        self._shared_retry = None
        self._notify()

    def _end_shared_removal(self) -> None:
        self._removing_shared = False
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
        self._report_idle()

    def _report_idle(self) -> None:
        if self._num_discarding == 0 and not self._removing_shared:
            callbacks, self._when_idle = self._when_idle, []
            for callback in callbacks:
                callback()


class _FailedRemoval:
    """`retry` is None when it was tried often enough: then once more at the end."""

    def __init__(self, work: Callable[[], None], retry: Cancellable | None) -> None:
        self.work = work
        self._retry = retry

    def cancel(self) -> None:
        if self._retry is not None:
            self._retry.cancel()


def _log_left_behind(what: str, error: Exception) -> None:
    logger.error("%s could not be removed: %s", what, error)
