"""The checkpoints of one job during one leader's term: the coordinator with its stores, counters and statistics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.pending import JobIdentity
from checkpointing.coordinator.ports import CheckpointPlan, PossibleInconsistentState
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.ha.errors import HighAvailabilityError
from checkpointing.jobs.attempts import AttemptRecord
from checkpointing.jobs.coordinator_runner import CoordinatorRunner, CoordinatorSteps, FailTheJob, LeftBehind
from checkpointing.jobs.driver_link import DriverGateway
from checkpointing.jobs.restore import restore_candidates
from checkpointing.jobs.savepoint_claim import SavepointClaim
from checkpointing.jobs.services import JobServices
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import AcknowledgeCheckpoint
from checkpointing.model.status import JobStatus
from checkpointing.storage.errors import StorageSilent
from checkpointing.storage.layout import unused_file
from checkpointing.storage.sweeping import Swept

logger = logging.getLogger(__name__)

_AGAIN_AFTER_S = 1.0
# How long a suspended job waits for storage that does not answer.
SUSPEND_SILENCE_S = 5.0

RECOVERY_ERRORS = (OSError, ValueError, HighAvailabilityError)


class JobCheckpoints:
    """The checkpoints of one job.

    CheckpointCoordinator and CoordinatorRunner explain `plan`, `fail_job` and `left_behind`.

    The constructor raises LeadershipLost.
    """

    def __init__(
        self,
        graph: JobGraph,
        config: CheckpointConfiguration,
        services: JobServices,
        gateway: DriverGateway,
        plan: Callable[[], CheckpointPlan],
        fail_job: FailTheJob,
        left_behind: LeftBehind,
    ) -> None:
        recovery = services.high_availability.recovery_factory.create(graph.job_id, config.num_retained)
        self._store = recovery.store
        self._storage = services.storage(graph, config, recovery.term_lasts, lambda: recovery.store.checkpoints)
        self._services = services
        self.config = config
        self._graph = graph
        self._job_id = graph.job_id
        self._io = services.storage_io_of(graph.job_id)
        self._claims = SavepointClaim(graph, services.claims(graph, config), self._io)
        self._recovered_ids: tuple[int, ...] = ()
        self._hastened_in_attempt = 0
        self.first_id: int | None = None
        self.is_recovered = False
        self._sweep_is_due = False
        self._sweep: asyncio.Task[None] | None = None
        coordinator = CheckpointCoordinator(
            JobIdentity(graph.job_id, graph.name, graph.entry_class, graph.imported_queries),
            gateway.session_id,
            config,
            services.clock,
            plan,
            history_size=services.settings.history_size,
        )
        self.stats = coordinator.stats
        self.coordinator = CoordinatorRunner(
            coordinator,
            CoordinatorSteps(self._storage, recovery.store, recovery.counter),
            io=self._io,
            timer=services.timer,
            send=gateway.send,
            fail_job=fail_job,
            left_behind=left_behind,
        )

    @classmethod
    def of_ended_job(cls, graph: JobGraph, services: JobServices) -> JobCheckpoints:
        """Return checkpoints for cleaning up after an ended job, without driver and trigger.

        Raise InvalidConfiguration.
        """
        no_tasks = CheckpointPlan((), ready=False, reason="The job has ended.")
        config = CheckpointConfiguration.parse(graph.configuration)
        no_driver = DriverGateway("", lambda: False)

        def left_behind(what: str, error: Exception) -> None:
            logger.error("job %s: %s could not be removed: %s", graph.job_id, what, error)

        return cls(graph, config, services, no_driver, lambda: no_tasks, lambda message, error: None, left_behind)

    @property
    def store(self) -> HandleCompletedCheckpointStore:
        return self._store

    @property
    def unreadable(self) -> Sequence[str]:
        """Return one sentence for each checkpoint that the recovery left out."""
        return [
            f"The retained checkpoint {left_out.name} is not used: {left_out.reason}"
            for left_out in self._store.unreadable
        ]

    def receive_acknowledge(self, message: AcknowledgeCheckpoint) -> None:
        """Store the state inside the acknowledgement, then pass it on, so that the last one finds all state stored.

        Before `recover` the acknowledgement is dropped. It belongs to an earlier leader's checkpoint, and it is not yet
        known which of its files others need. A sweep removes the unused ones.
        """
        if not self.is_recovered:
            logger.info("job %s: an acknowledgement of checkpoint %d is dropped", self._job_id, message.checkpoint_id)
            return
        self.coordinator.acknowledge(self._storage.keep_contents(message))

    async def recover(self, first_id: int | None = None, *, is_new_run: bool = False) -> None:
        """Read what earlier job managers stored. Raise one of RECOVERY_ERRORS.

        Args:
            first_id: the first checkpoint ID of this run of the job.
            is_new_run: no attempt of this run has started before, so it has no first ID yet. Afterwards this object's
                `first_id` is the one to record.
        """
        await asyncio.wrap_future(self.coordinator.recover())
        self._recovered_ids = tuple(checkpoint.checkpoint_id for checkpoint in self._store.checkpoints)
        self.first_id = first_id
        await self._find(is_new_run=is_new_run)
        self.is_recovered = True

    def batch_committed(self, attempt: int) -> None:
        """Trigger the job's first checkpoint at once, because until then the files of its queries are the only state.

        Do nothing if the job has a snapshot to restore, or if this attempt has already triggered the checkpoint.
        """
        if self._hastened_in_attempt == attempt or restore_candidates(self._store.checkpoints, self._graph):
            return
        self._hastened_in_attempt = attempt
        self.coordinator.trigger_periodic_now()

    async def recover_unless_silent(self, first_id: int | None) -> None:
        """Recover as `recover` does. Raise StorageSilent if storage hangs; then do not use this object any more."""
        recovered = asyncio.ensure_future(self.recover(first_id))
        try:
            await self._io.wait_while_active(recovered)
        except StorageSilent:
            await self._abandon()
            raise
        finally:
            recovered.cancel()

    async def _find(self, *, is_new_run: bool) -> None:
        """Report the unknown checkpoints in the job's directory to the coordinator, so that none is lost.

        Raise OSError if the directory cannot be read now. A job that never ran starts nevertheless.
        """
        known = [c.checkpoint_id for c in self._store.checkpoints if not c.properties.claimed]
        known += self._unreadable_ids
        try:
            found = await self._io.read("it", lambda: self._storage.found(known))
            last_id = await self._io.read("it", self._storage.last_id)
        except OSError as error:
            if not is_new_run:
                raise
            logger.warning("job %s: its checkpoint directory cannot be looked through: %s", self._job_id, error)
            return
        if is_new_run:
            self.first_id = max((last_id, *self._recovered_ids)) + 1
        self.coordinator.found(found, self.first_id)

    async def claim(self, checkpoint: CompletedCheckpoint) -> None:
        """Make the restored snapshot the job's own. Return once the store has it.

        Raise SnapshotClaimed or another OSError if the job cannot own it. Retry while the store does not answer.
        """
        await self._claims.make()
        while all(retained.location != checkpoint.location for retained in self._store.checkpoints):
            try:
                await self._add_claimed(checkpoint)
            except (HighAvailabilityError, PossibleInconsistentState) as error:
                logger.warning("job %s: %s could not be claimed yet: %s", self._job_id, checkpoint.location, error)
                await asyncio.sleep(_AGAIN_AFTER_S)
                with contextlib.suppress(*RECOVERY_ERRORS):
                    await self.recover(self.first_id)  # the store may have the checkpoint despite the error

    async def _add_claimed(self, checkpoint: CompletedCheckpoint) -> None:
        is_outside_job_directory = await self._claims.is_outside_job_directory()
        await asyncio.wrap_future(self.coordinator.claim(checkpoint, is_outside_job_directory=is_outside_job_directory))

    @property
    def _unreadable_ids(self) -> list[int]:
        return [int(left_out.name) for left_out in self._store.unreadable]

    def adopted(self, record: AttemptRecord) -> None:
        """Continue with a driver that an earlier job manager started, with the checkpoint that its attempt restored."""
        if record.restored_checkpoint_id is not None and self.coordinator.latest_completed is None:
            self.coordinator.continue_from_unclaimed(record.restored_checkpoint_id)

    async def sweep(self, session_id: str) -> None:
        """Remove files that crashes left.

        Call it after `recover`, while no driver of the job is running. It never ends a job.
        """
        leads = self._term(session_id)
        swept = await self._swept(leads, below=None)
        await self._sweep_savepoints(leads)
        try:
            if swept is not None and not self._unreadable_ids and leads():
                await self._claims.finish_discarding(self._store.checkpoints)
        except OSError as error:
            logger.warning("job %s: what is left of a claimed snapshot stays: %s", self._job_id, error)

    def sweep_once_completed(self, session_id: str) -> None:
        """Remove what earlier attempts left once the first checkpoint of this attempt is complete.

        From then on the driver writes nothing that belongs to them. The attempt need not wait for the removal.
        """

        def begin(below: Future[int]) -> None:
            self._sweep_is_due = False
            self._sweep = asyncio.ensure_future(self._sweep_while_driver_runs(self._term(session_id), below.result()))
            self._sweep.add_done_callback(self._log_failed_sweep)

        if not self._sweep_is_due:
            self._sweep_is_due = True
            self.coordinator.next_completed().add_done_callback(begin)

    def _log_failed_sweep(self, sweep: asyncio.Task[None]) -> None:
        if not sweep.cancelled() and (error := sweep.exception()) is not None:
            logger.error("job %s: the sweep of orphaned files failed", self._job_id, exc_info=error)

    async def _sweep_while_driver_runs(self, leads: Callable[[], bool], below: int) -> None:
        # The awaited checkpoint has subsumed another one, whose files are being removed now and are not orphans.
        await asyncio.wrap_future(self.coordinator.cleaned())
        swept = await self._swept(leads, below=below)
        if swept is not None and leads():
            self.coordinator.unused([unused_file(name) for name in swept.unused])
        await self._sweep_savepoints(leads)

    async def _swept(self, leads: Callable[[], bool], below: int | None) -> Swept | None:
        unreadable = self._unreadable_ids
        try:
            unclaimed, claimed = await self._claims.ids_here()
            kept = {*unclaimed, *self._recovered_ids, *self.coordinator.uncertain_ids}
            retained = [c for c in self._store.checkpoints if not c.properties.claimed]
            swept = await self._io.run(
                lambda: self._storage.sweep(
                    retained, unreadable, leads, kept, claimed, below=below, first_id=self.first_id
                )
            )
        except OSError as error:
            logger.warning("job %s: orphaned checkpoint files are left behind: %s", self._job_id, error)
            return None
        self.coordinator.swept(swept.checkpoint_ids)
        if str(swept) != str(Swept()):
            logger.info("job %s: removed %s", self._job_id, swept)
        return swept

    async def _sweep_savepoints(self, leads: Callable[[], bool]) -> None:
        try:
            for directory in await self._io.run(lambda: self._storage.sweep_savepoints(leads)):
                logger.info("job %s: removed %s, a savepoint that was never completed", self._job_id, directory)
        except OSError as error:
            logger.warning("job %s: savepoints that were never completed stay: %s", self._job_id, error)

    def _term(self, session_id: str) -> Callable[[], bool]:
        return partial(self._services.high_availability.leader_election.has_leadership, session_id)

    async def settled(self) -> None:
        """Wait after an abort until no checkpoint is being added to the store."""
        await asyncio.wrap_future(self.coordinator.settled())

    async def savepoints_written(self) -> None:
        """Wait after the driver's end until all savepoints that it acknowledged completely are written."""
        await asyncio.wrap_future(self.coordinator.savepoints_written())

    async def shutdown(self, status: JobStatus, *, is_saved: bool) -> Exception | None:
        """Close everything. Log and return the error of what could not be closed, or None.

        If storage hangs, StorageSilent is returned; then nothing was closed, and nothing is closed later. The clean-up
        of a terminated job must be repeated; with another status, the next job manager owns what is left. `is_saved`:
        see `CheckpointProperties.discard_on`.
        """
        silence_s = self._io.silence_s if status.globally_terminal else min(SUSPEND_SILENCE_S, self._io.silence_s)
        try:
            if self._sweep is not None:  # an error of the sweep is not one of the shutdown
                swept = asyncio.ensure_future(asyncio.wait({self._sweep}))
                await self._io.wait_while_active(swept, silence_s=silence_s)
            closed = asyncio.wrap_future(self.coordinator.shutdown(status, is_saved=is_saved))
            error = await self._io.wait_while_active(closed, silence_s=silence_s)
            if status.globally_terminal or not self._store.outlives_job_manager:
                await self.give_up_claim()
        except StorageSilent as silent:
            await self._abandon()
            error = silent
        if error is not None:
            logger.error("job %s: its checkpoints could not all be closed (%s): %s", self._job_id, status.value, error)
        return error

    async def _abandon(self) -> None:
        """Leave everything to the next owner, and unlock the stored handles for it."""
        if self._sweep is not None:
            self._sweep.cancel()
        self.coordinator.abandon_shutdown()
        if self._store.outlives_job_manager:
            with contextlib.suppress(StorageSilent):
                io = self._services.io_of(self._job_id)
                await io.read("the store", partial(self._store.shutdown, JobStatus.SUSPENDED))

    async def give_up_claim(self) -> None:
        """Release the job's claim on a snapshot that it did not remove. The snapshot belongs to its owner again."""
        await self._claims.give_up()
