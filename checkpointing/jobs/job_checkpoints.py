"""One job's checkpoints: the coordinator with its stores, counters and statistics, for one term of one leader."""

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
# How long a job that is left to the next job manager waits at most for storage that does not answer.
SUSPEND_SILENCE_S = 5.0

RECOVERY_ERRORS = (OSError, ValueError, HighAvailabilityError)


class JobCheckpoints:
    """`plan`, `fail_job` and `left_behind`: see CheckpointCoordinator and CoordinatorRunner. LeadershipLost."""

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
        """For cleaning up what an ended job left: no driver, no trigger. InvalidConfiguration."""
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
        """What the recovery had to leave out, one sentence each."""
        return [
            f"The retained checkpoint {left_out.name} is not used: {left_out.reason}"
            for left_out in self._store.unreadable
        ]

    def receive_acknowledge(self, message: AcknowledgeCheckpoint) -> None:
        """State that came along is put into the storage first, where the last acknowledgement must find all of it.

        Before `recover` it is dropped: it is of an earlier leader's checkpoint, and which of its files others need is
        not known yet. A sweep removes what nothing needs.
        """
        if not self.is_recovered:
            logger.info("job %s: an acknowledgement of checkpoint %d is dropped", self._job_id, message.checkpoint_id)
            return
        self.coordinator.acknowledge(self._storage.keep_contents(message))

    async def recover(self, first_id: int | None = None, *, is_new_life: bool = False) -> None:
        """Read what earlier job managers stored; one of RECOVERY_ERRORS. `first_id`: of this life of the job.

        `is_new_life`: it has none yet, and no attempt of it ever ran; then `first_id` is what it may record.
        """
        await asyncio.wrap_future(self.coordinator.recover())
        self._recovered_ids = tuple(checkpoint.checkpoint_id for checkpoint in self._store.checkpoints)
        self.first_id = first_id
        await self._find(is_new_life=is_new_life)
        self.is_recovered = True

    def batch_committed(self, attempt: int) -> None:
        """Trigger the job's first checkpoint at once: until then the files of its queries are the only state.

        Does nothing for a job that has a snapshot to restore, or had it triggered in this attempt before.
        """
        if self._hastened_in_attempt == attempt or restore_candidates(self._store.checkpoints, self._graph):
            return
        self._hastened_in_attempt = attempt
        self.coordinator.trigger_periodic_now()

    async def recover_unless_silent(self, first_id: int | None) -> None:
        """As `recover`. StorageSilent when storage hangs: this object must not be used any more."""
        recovered = asyncio.ensure_future(self.recover(first_id))
        try:
            await self._io.while_working(recovered)
        except StorageSilent:
            await self._abandon()
            raise
        finally:
            recovered.cancel()

    async def _find(self, *, is_new_life: bool) -> None:
        """What lies in the job's directory though the store does not know it: nothing of it may get lost.

        OSError when it cannot be looked through now; a job that never ran starts all the same.
        """
        known = [c.checkpoint_id for c in self._store.checkpoints if not c.properties.claimed]
        known += self._unreadable_ids
        try:
            found = await self._io.look("it", lambda: self._storage.found(known))
            last_id = await self._io.look("it", self._storage.last_id)
        except OSError as error:
            if not is_new_life:
                raise
            logger.warning("job %s: its checkpoint directory cannot be looked through: %s", self._job_id, error)
            return
        if is_new_life:
            self.first_id = max((last_id, *self._recovered_ids)) + 1
        self.coordinator.found(found, self.first_id)

    async def claim(self, checkpoint: CompletedCheckpoint) -> None:
        """The snapshot that the job is restored from becomes its own; returns when the store has it.

        SnapshotClaimed, another OSError when it cannot be taken over. A store that does not answer is waited for.
        """
        await self._claims.make()
        while all(retained.location != checkpoint.location for retained in self._store.checkpoints):
            try:
                await self._add_claimed(checkpoint)
            except (HighAvailabilityError, PossibleInconsistentState) as error:
                logger.warning("job %s: %s could not be claimed yet: %s", self._job_id, checkpoint.location, error)
                await asyncio.sleep(_AGAIN_AFTER_S)
                with contextlib.suppress(*RECOVERY_ERRORS):
                    await self.recover(self.first_id)  # it may be in the store all the same

    async def _add_claimed(self, checkpoint: CompletedCheckpoint) -> None:
        lies_elsewhere = await self._claims.lies_elsewhere()
        await asyncio.wrap_future(self.coordinator.claim(checkpoint, lies_elsewhere=lies_elsewhere))

    @property
    def _unreadable_ids(self) -> list[int]:
        return [int(left_out.name) for left_out in self._store.unreadable]

    def adopted(self, record: AttemptRecord) -> None:
        """A driver that an earlier job manager started goes on: what that one knew of its start still holds."""
        if record.restored_checkpoint_id is not None and self.coordinator.latest_completed is None:
            self.coordinator.continue_from_unclaimed(record.restored_checkpoint_id)

    async def sweep(self, session_id: str) -> None:
        """Remove what crashes left behind. After `recover`, while no driver of the job lives; it never stops a job."""
        leads = self._term(session_id)
        swept = await self._swept(leads, below=None)
        await self._sweep_savepoints(leads)
        try:
            if swept is not None and not self._unreadable_ids and leads():
                await self._claims.finish_discarding(self._store.checkpoints)
        except OSError as error:
            logger.warning("job %s: what is left of a claimed snapshot stays: %s", self._job_id, error)

    def sweep_once_completed(self, session_id: str) -> None:
        """An attempt begins, or goes on here: what those before it left goes when its first checkpoint is complete.

        Then its driver writes nothing of theirs any more, and it need not have waited for that.
        """

        def begin(below: Future[int]) -> None:
            self._sweep_is_due = False
            self._sweep = asyncio.ensure_future(self._sweep_beside_driver(self._term(session_id), below.result()))
            self._sweep.add_done_callback(self._log_failed_sweep)

        if not self._sweep_is_due:
            self._sweep_is_due = True
            self.coordinator.next_completed().add_done_callback(begin)

    def _log_failed_sweep(self, sweep: asyncio.Task[None]) -> None:
        if not sweep.cancelled() and (error := sweep.exception()) is not None:
            logger.error("job %s: the sweep of orphaned files failed", self._job_id, exc_info=error)

    async def _sweep_beside_driver(self, leads: Callable[[], bool], below: int) -> None:
        # The checkpoint that the sweep waited for has subsumed another: what is being removed is no orphan.
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
        """After an abort: until no checkpoint is being added to the store any more."""
        await asyncio.wrap_future(self.coordinator.settled())

    async def savepoints_written(self) -> None:
        """After the driver's end: until no savepoint that it handed in completely is still being written."""
        await asyncio.wrap_future(self.coordinator.savepoints_written())

    async def shutdown(self, status: JobStatus, *, is_saved: bool) -> Exception | None:
        """Return what could not be closed, logged; everything else was.

        StorageSilent is returned when storage hangs; then nothing was closed, and nothing of it is closed later. A
        terminated job's clean-up is to be repeated; what another status leaves is the next job manager's anyway.
        `is_saved`: see `CheckpointProperties.discard_on`.
        """
        silence_s = self._io.silence_s if status.globally_terminal else min(SUSPEND_SILENCE_S, self._io.silence_s)
        try:
            if self._sweep is not None:  # its own trouble is not that of the shutdown
                swept = asyncio.ensure_future(asyncio.wait({self._sweep}))
                await self._io.while_working(swept, silence_s=silence_s)
            closed = asyncio.wrap_future(self.coordinator.shutdown(status, is_saved=is_saved))
            error = await self._io.while_working(closed, silence_s=silence_s)
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
                await io.look("the store", partial(self._store.shutdown, JobStatus.SUSPENDED))

    async def give_up_claim(self) -> None:
        """The job is over: a snapshot that it claimed and did not remove is its owner's again."""
        await self._claims.give_up()
