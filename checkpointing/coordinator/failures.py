"""When failed checkpoints fail the job: Flink's CheckpointFailureManager, without its rules for savepoints."""

from __future__ import annotations

from checkpointing.coordinator.effects import FailJob
from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.model.checkpoint import CheckpointProperties
from checkpointing.model.configuration import UNLIMITED_FAILURES

UNKNOWN_CHECKPOINT_ID = -1

THRESHOLD_MESSAGE = "Exceeded checkpoint tolerable failure threshold."


class CheckpointFailureManager:
    """Counts failures in a row. Once more than `tolerable_failures` came, the job fails.

    Each checkpoint id counts once; a failure older than the last success is ignored; a newer success starts from zero.
    A savepoint never fails the job: a full savepoint storage says nothing about a job whose checkpoints are good
    (decision 122; in Flink one that a task declined counts, and a synchronous one fails the job at once).
    """

    def __init__(self, *, tolerable_failures: int) -> None:
        if tolerable_failures < 0:
            raise ValueError(f"tolerable_failures: {tolerable_failures} is not allowed; at least 0")
        self._tolerable = tolerable_failures
        self._counted: set[int] = set()
        self._num_failures = 0
        self._last_succeeded = UNKNOWN_CHECKPOINT_ID

    @property
    def num_continuous_failures(self) -> int:
        return self._num_failures

    def handle_failure(
        self,
        exception: CheckpointException,
        *,
        properties: CheckpointProperties,
        checkpoint_id: int = UNKNOWN_CHECKPOINT_ID,
    ) -> FailJob | None:
        if properties.is_savepoint:
            return None
        if self._is_new_failure(exception, checkpoint_id):
            self._counted.add(checkpoint_id)
            self._num_failures += 1
        if self._num_failures <= self._tolerable:
            return None
        self._clear()
        return FailJob(f"{THRESHOLD_MESSAGE} The latest checkpoint failed due to {exception}", exception)

    def handle_success(self, checkpoint_id: int) -> None:
        if checkpoint_id > self._last_succeeded:
            self._clear()
            self._last_succeeded = checkpoint_id

    def _is_new_failure(self, exception: CheckpointException, checkpoint_id: int) -> bool:
        if self._tolerable == UNLIMITED_FAILURES or not exception.reason.counts:
            return False
        if checkpoint_id == UNKNOWN_CHECKPOINT_ID:
            return True
        return checkpoint_id > self._last_succeeded and checkpoint_id not in self._counted

    def _clear(self) -> None:
        self._counted.clear()
        self._num_failures = 0
