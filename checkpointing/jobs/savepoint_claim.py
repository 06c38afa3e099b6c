"""The claim of one job on the snapshot that it was submitted with, if it was submitted to take it over."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from checkpointing.jobs.loop import LoopIoExecutor
from checkpointing.jobs.restore import claims_savepoint
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.job_graph import JobGraph
from checkpointing.storage.claims import JobClaims
from checkpointing.storage.found import checkpoint_id_of
from checkpointing.storage.locations import canonical

logger = logging.getLogger(__name__)


class SavepointClaim:
    """Does nothing for a job without a savepoint, or in mode NO_CLAIM."""

    def __init__(self, graph: JobGraph, claims: JobClaims, io: LoopIoExecutor) -> None:
        self._job_id = graph.job_id
        self._path = canonical(graph.savepoint_path) if graph.savepoint_path is not None else None
        self._is_made = claims_savepoint(graph)
        self._claims = claims
        self._io = io

    async def lies_elsewhere(self) -> bool:
        """Not in the job's own directory, where everything is the job's without a claim. OSError."""
        path = self._path
        return path is not None and await self._io.look(path, lambda: self._claims.lies_elsewhere(path))

    async def ids_here(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of a checkpoint in the job's own directory: (unclaimed, claimed). OSError.

        An unclaimed one is not the job's to remove; a claimed one is of an earlier life of the job, and its own again.
        """
        if self._path is None or await self.lies_elsewhere():
            return (), ()
        checkpoint_id = checkpoint_id_of(self._path)
        ids = () if checkpoint_id is None else (checkpoint_id,)
        return ((), ids) if self._is_made else (ids, ())

    async def make(self) -> None:
        """SnapshotClaimed, or another OSError."""
        path = self._path
        if path is not None and self._is_made and await self.lies_elsewhere():
            await self._io.run(lambda: self._claims.claim(path))

    async def give_up(self) -> None:
        """A claim that stays keeps others from the snapshot; that is said, and changes nothing for this job."""
        path = self._path
        if path is None or not self._is_made:
            return
        try:
            await self._io.look(path, lambda: self._claims.give_up(path))
        except OSError as error:
            logger.error("job %s: its claim on %s could not be given up: %s", self._job_id, path, error)

    async def finish_discarding(self, retained: Sequence[CompletedCheckpoint]) -> None:
        """End the removal of a claimed snapshot whose place a newer one of `retained` has taken. OSError."""
        path = self._path
        is_dropped = bool(retained) and all(checkpoint.location != path for checkpoint in retained)
        if path is not None and self._is_made and is_dropped and await self.lies_elsewhere():
            await self._io.run(lambda: self._claims.finish_discarding(path))
