"""Changing the parallelism of a running job (Flink's `PUT /jobs/:id/resource-requirements`, its adaptive scheduler).

    1. the job's graph is stored with the new parallelism: from here on every restart makes the change
    2. a checkpoint is completed, which proves that there is a state to go on from, and of which kind
    3. the driver is told to stop: its queries end after their batch, none with a batch half done
    4. the next attempt goes on in the state that was left, or else in the checkpoint, and rescales it

Step 1 is the intent: a job manager that finds an attempt with another parallelism than the graph's goes on with 2. When
no checkpoint can be completed, the change waits for the next one that is. A change that Spark refuses is undone, and
the job goes on as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.jobs.attempt import Attempt
from checkpointing.jobs.attempt_starter import AttemptStarter
from checkpointing.jobs.driver_link import DriverGateway
from checkpointing.jobs.ended_jobs import STORE_ERRORS
from checkpointing.jobs.graph import JobGraph
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.job_requests import OperationRefused
from checkpointing.jobs.parallelism import (
    InvalidRequirements,
    Requirements,
    asked_parallelism,
    required_parallelism,
    requirements_of,
    with_parallelism,
)
from checkpointing.jobs.services import JobServices
from checkpointing.jobs.status import JobStatus
from checkpointing.messages import ExceptionInfo, Stop, VertexKind

logger = logging.getLogger(__name__)

# What the driver reports when Spark cannot do it (spark/rescale.py).
REFUSED = "RescaleRefused"
_ASK_AGAIN_S = 5.0


class RequirementsNotStored(Exception):
    """The job graph store did not take the new requirements; nothing was changed."""


class JobRescale:
    """`is_stopping`: a stop-with-savepoint is on its way."""

    def __init__(
        self,
        record: JobRecord,
        services: JobServices,
        coordinator: CheckpointCoordinator,
        gateway: DriverGateway,
        starter: AttemptStarter,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._record = record
        self._services = services
        self._coordinator = coordinator
        self._gateway = gateway
        self._starter = starter
        self._is_stopping = is_stopping
        self._work: asyncio.Task[None] | None = None

    @property
    def requirements(self) -> Requirements:
        return requirements_of(self._record.graph, self._record.vertices)

    async def require(self, requirements: Requirements) -> None:
        """Returns once the requirements are stored; the restart, if they need one, follows.

        InvalidRequirements, OperationRefused, RequirementsNotStored: nothing was changed.
        """
        self._check_possible()
        graph, vertices = self._record.graph, self._record.vertices
        parallelism = required_parallelism(requirements, vertices)
        if parallelism != max(vertex.parallelism for vertex in vertices if vertex.kind is VertexKind.STATEFUL):
            self._check_provider(parallelism)
            graph = with_parallelism(graph, parallelism)
        lower = {vertex_id: bounds.lower for vertex_id, bounds in requirements.items()}
        await self._store(replace(graph, lower_bounds=lower))
        self.begin_if_due()

    def begin_if_due(self) -> None:
        """The attempt that runs was started with another parallelism than the job asks for now."""
        attempt = self._record.attempt
        if self._is_under_way or attempt is None or not self._is_due(attempt):
            return
        if self._record.status is JobStatus.RUNNING:
            self._work = asyncio.create_task(self._stop_for_rescale(attempt), name=f"rescale {attempt.record.attempt}")

    def takes_over(self, attempt: Attempt) -> bool:
        """Whether an attempt that finished did so to be started again."""
        return self._is_due(attempt) and not self._is_stopping() and self._record.status is JobStatus.RUNNING

    async def undo(self, attempt: Attempt, info: ExceptionInfo) -> bool:
        """After a failure: Spark refused what the job asks for, and it asks for what it had before again."""
        if info.name != REFUSED or not attempt.record.is_rescaled:
            return False
        return await self._put_back(attempt.record.parallelism_before)

    @property
    def _is_under_way(self) -> bool:
        return self._work is not None and not self._work.done()

    def _is_due(self, attempt: Attempt) -> bool:
        return attempt.record.parallelism != asked_parallelism(self._record.graph)

    def _check_possible(self) -> None:
        if self._record.status is not JobStatus.RUNNING:
            raise OperationRefused(f"The job is {self._record.status.value}, not RUNNING.")
        if self._is_stopping():
            raise OperationRefused("A stop-with-savepoint is in progress.")
        if self._is_under_way:
            raise OperationRefused("A change of the parallelism is in progress.")

    def _check_provider(self, parallelism: int) -> None:
        latest = self._coordinator.latest_completed
        refusal = unsupported(latest) if latest is not None else None
        if refusal is not None:
            raise InvalidRequirements([f"upperBound {parallelism} is not possible: {refusal}"])

    async def _put_back(self, parallelism: int | None) -> bool:
        try:
            await self._store(with_parallelism(self._record.graph, parallelism))
        except RequirementsNotStored as error:
            logger.error("job %s: its parallelism cannot be put back: %s", self._record.graph.job_id, error)
            return False
        return True

    async def _store(self, graph: JobGraph) -> None:
        store = self._services.high_availability.job_graphs
        try:
            await self._services.io.run(lambda: store.put(graph))
        except STORE_ERRORS as error:
            raise RequirementsNotStored(f"The requirements could not be stored: {error}") from error
        self._record.graph = graph
        self._starter.graph = graph

    async def _stop_for_rescale(self, attempt: Attempt) -> None:
        asked = asked_parallelism(self._record.graph)
        try:
            completed = await asyncio.wrap_future(self._coordinator.trigger_checkpoint())
        except CheckpointException as error:
            waits = "waits for the next checkpoint or restart"
            self._say("RescalePostponed", f"The change to parallelism {asked} {waits}: {error}")
            self._begin_with_the_next_checkpoint()
            return
        refusal = unsupported(completed)
        if refusal is not None:
            self._say(REFUSED, f"The job goes on with the parallelism it has: {refusal}")
            await self._put_back(attempt.record.parallelism)
            return
        self._coordinator.stop_periodic()
        while not attempt.ended.done():
            self._gateway.send(Stop(self._gateway.session_id))
            await asyncio.wait({attempt.ended}, timeout=_ASK_AGAIN_S)

    def _begin_with_the_next_checkpoint(self) -> None:
        def completed(_: int) -> None:
            if self._is_stopping():
                self._begin_with_the_next_checkpoint()
            else:
                self.begin_if_due()

        self._coordinator.when_next_completed(completed)

    def _say(self, name: str, message: str) -> None:
        if not self._record.status.terminal:
            self._record.record_exception(self._record.info(name, message))
            logger.warning("job %s: %s", self._record.graph.job_id, message)


def unsupported(checkpoint: CompletedCheckpoint) -> str | None:
    """Why the state in `checkpoint` cannot be rescaled, by the names of its files."""
    names = (file.path for file in checkpoint.files if file.path.startswith("state/"))
    if any(name.endswith((".delta", ".snapshot")) for name in names):
        only = "Spark repartitions the state of RocksDBStateStoreProvider only"
        return f"{only}, this one is of HDFSBackedStateStoreProvider"
    return None
