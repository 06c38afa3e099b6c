"""The job's claim on the snapshot that it was submitted with, in mode CLAIM."""

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
    """A claim of one job. Does nothing for a job without a savepoint, or in mode NO_CLAIM."""

    def __init__(self, graph: JobGraph, claims: JobClaims, io: LoopIoExecutor) -> None:
        self._job_id = graph.job_id
        self._path = canonical(graph.savepoint_path) if graph.savepoint_path is not None else None
        self._is_made = claims_savepoint(graph)
        self._claims = claims
        self._io = io

    async def is_outside_job_directory(self) -> bool:
        """Return whether the snapshot is outside the job's own directory, where a claim is needed. Raise OSError."""
        path = self._path
        return path is not None and await self._io.read(path, lambda: self._claims.is_outside_job_directory(path))

    async def ids_here(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ID of a snapshot in the job's own directory, as (unclaimed, claimed). Raise OSError.

        The job must not remove an unclaimed one. A claimed one comes from an earlier run of the job and belongs to it
        again.
        """
        if self._path is None or await self.is_outside_job_directory():
            return (), ()
        checkpoint_id = checkpoint_id_of(self._path)
        ids = () if checkpoint_id is None else (checkpoint_id,)
        return ((), ids) if self._is_made else (ids, ())

    async def make(self) -> None:
        """Claim the snapshot if it is outside the job's directory. Raise SnapshotClaimed or another OSError."""
        path = self._path
        if path is not None and self._is_made and await self.is_outside_job_directory():
            await self._io.run(lambda: self._claims.claim(path))

    async def give_up(self) -> None:
        """Release the claim. If that fails, log it: the claim then keeps other jobs from the snapshot."""
        path = self._path
        if path is None or not self._is_made:
            return
        try:
            await self._io.read(path, lambda: self._claims.give_up(path))
        except OSError as error:
            logger.error("job %s: its claim on %s could not be given up: %s", self._job_id, path, error)

    async def finish_discarding(self, retained: Sequence[CompletedCheckpoint]) -> None:
        """Finish the removal of a claimed snapshot that a newer checkpoint of `retained` replaced. Raise OSError."""
        path = self._path
        is_dropped = bool(retained) and all(checkpoint.location != path for checkpoint in retained)
        if path is not None and self._is_made and is_dropped and await self.is_outside_job_directory():
            await self._io.run(lambda: self._claims.finish_discarding(path))
