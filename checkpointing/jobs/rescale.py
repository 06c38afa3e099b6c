"""Changes the parallelism of a running job (Flink's `PUT /jobs/:id/resource-requirements`, its adaptive scheduler).

1. the job's graph is stored with the new parallelism: from now on every restart makes the change
  2. a checkpoint is completed, which proves that there is a state to continue from, and shows its kind
  3. the driver gets the order to stop: each query finishes its current batch and ends
  4. the next attempt continues in the local state, or else in the checkpoint, and rescales it

Step 1 is the intent. A job manager that finds an attempt whose parallelism differs from the graph's continues with step
2. If no checkpoint can be completed, the change waits for the next completed one. A change that Spark refuses is
undone, and the job continues as before.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.attempt_starter import AttemptStarter
from checkpointing.jobs.coordinator_runner import CoordinatorRunner
from checkpointing.jobs.driver_link import DriverGateway
from checkpointing.jobs.ended_jobs import STORE_ERRORS
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.long_action import LongAction, LongActions, OperationRefused
from checkpointing.jobs.parallelism import (
    InvalidRequirements,
    Requirements,
    requested_parallelism,
    required_parallelism,
    requirements_of,
    with_parallelism,
)
from checkpointing.jobs.services import JobServices
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import ExceptionInfo, FinishCause, Stop, VertexKind
from checkpointing.model.status import JobStatus

logger = logging.getLogger(__name__)

# The name of the failure that the driver reports if Spark cannot rescale (spark/rescale.py).
REFUSED = "RescaleRefused"


class RequirementsNotStored(Exception):
    """The job graph store did not accept the new requirements. Nothing was changed."""


class JobRescale:
    def __init__(
        self,
        record: JobRecord,
        services: JobServices,
        coordinator: CoordinatorRunner,
        gateway: DriverGateway,
        starter: AttemptStarter,
        actions: LongActions,
    ) -> None:
        self._record = record
        self._services = services
        self._coordinator = coordinator
        self._gateway = gateway
        self._starter = starter
        self._actions = actions
        self._work: asyncio.Task[None] | None = None

    @property
    def requirements(self) -> Requirements:
        return requirements_of(self._record.graph, self._record.vertices)

    async def require(self, requirements: Requirements) -> None:
        """Return once the requirements are stored. A restart follows if they need one.

        After InvalidRequirements, OperationRefused or RequirementsNotStored nothing was changed.
        """
        attempt = self._running_attempt()
        graph, vertices = self._record.graph, self._record.vertices
        parallelism = required_parallelism(requirements, vertices)
        if parallelism != max(vertex.parallelism for vertex in vertices if vertex.kind is VertexKind.STATEFUL):
            self._check_provider(parallelism)
            graph = with_parallelism(graph, parallelism)
        elif self._is_due(attempt):  # the request withdraws a change that is still waiting
            graph = with_parallelism(graph, attempt.record.parallelism)
        lower = {vertex_id: bounds.lower for vertex_id, bounds in requirements.items()}
        await self._store(replace(graph, lower_bounds=lower))
        self.begin_if_due()

    def begin_if_due(self) -> None:
        """Restart the job if its attempt was started with another parallelism than the job requests now.

        While another long action is in progress, wait for the next completed checkpoint.
        """
        attempt = self._record.attempt
        if self._record.status is not JobStatus.RUNNING or attempt is None or not self._is_due(attempt):
            return
        if self._actions.current is not None:
            self._begin_after_next_checkpoint()
            return
        self._actions.begin(LongAction.RESCALE)
        self._work = asyncio.create_task(self._stop_for_rescale(attempt), name=f"rescale {attempt.number}")
        self._work.add_done_callback(lambda _: self._actions.end())

    def takes_over(self, attempt: Attempt, end: AttemptEnd) -> bool:
        """Return whether the attempt finished only so that the next one starts with another parallelism.

        The driver repeats the reason of its order to stop, because an earlier leader may have sent that order. A driver
        that finished by itself, or after the savepoint of a stop, ends the job.
        """
        if attempt.stopped_with is not None or self._record.status is not JobStatus.RUNNING:
            return False
        return end.finish_cause is FinishCause.FOR_RESCALE

    async def undo(self, attempt: Attempt, info: ExceptionInfo) -> bool:
        """Return to the previous parallelism if the failure says that Spark refused the new one."""
        if info.name != REFUSED or not attempt.record.is_rescaled:
            return False
        return await self._restore_parallelism(attempt.record.parallelism_before)

    def _is_due(self, attempt: Attempt) -> bool:
        return attempt.record.parallelism != requested_parallelism(self._record.graph)

    def _running_attempt(self) -> Attempt:
        attempt = self._record.attempt
        if self._record.status is not JobStatus.RUNNING or attempt is None:
            raise OperationRefused(f"The job is {self._record.status.value}, not RUNNING.")
        self._actions.require_none()
        return attempt

    def _check_provider(self, parallelism: int) -> None:
        latest = self._coordinator.latest_completed
        refusal = unsupported(latest) if latest is not None else None
        if refusal is not None:
            raise InvalidRequirements([f"upperBound {parallelism} is not possible: {refusal}"])

    async def _restore_parallelism(self, parallelism: int | None) -> bool:
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
        requested = requested_parallelism(self._record.graph)
        try:
            completed = await asyncio.wrap_future(self._coordinator.trigger_checkpoint())
        except CheckpointException as error:
            waits = "waits for the next checkpoint or restart"
            self._report("RescalePostponed", f"The change to parallelism {requested} {waits}: {error}")
            self._begin_after_next_checkpoint()
            return
        refusal = unsupported(completed)
        if refusal is not None:
            self._report(REFUSED, f"The job keeps its current parallelism: {refusal}")
            await self._restore_parallelism(attempt.record.parallelism)
            return
        self._coordinator.stop_periodic()
        attempt.ends_for_rescale = True
        self._gateway.send(Stop(self._gateway.session_id, FinishCause.FOR_RESCALE))
        await asyncio.wait({attempt.ended})

    def _begin_after_next_checkpoint(self) -> None:
        self._coordinator.next_completed().add_done_callback(lambda _: self.begin_if_due())

    def _report(self, name: str, message: str) -> None:
        if not self._record.status.terminal:
            self._record.record_exception(self._record.info(name, message))
            logger.warning("job %s: %s", self._record.graph.job_id, message)


def unsupported(checkpoint: CompletedCheckpoint) -> str | None:
    """Return why the state in `checkpoint` cannot be rescaled, based on its file names, or None."""
    names = (file.path for file in checkpoint.files if file.path.startswith("state/"))
    if any(name.endswith((".delta", ".snapshot")) for name in names):
        only = "Spark repartitions the state of RocksDBStateStoreProvider only"
        return f"{only}, this one is of HDFSBackedStateStoreProvider"
    return None
