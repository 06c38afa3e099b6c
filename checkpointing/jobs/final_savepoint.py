"""The final savepoint of a job whose queries have all ended by themselves (`availableNow`, `once`, a bounded source).

    1. the driver reports ENDED: nothing is in flight, and no query starts again
    2. the directory of a new savepoint is recorded, and the savepoint is taken; if it fails, both are tried again
    3. the job manager sends `Stop` to the driver, and the job is FINISHED

If the driver dies before the savepoint is complete, the next attempt runs to its own end. If the job manager dies, the
next one reads the record. If the savepoint is complete, that job manager continues with step 3, whether the driver
is running or not. If not, the adopted driver reports ENDED again, and the job manager continues with step 2.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from functools import partial

from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.ha.errors import HighAvailabilityError
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.attempt_starter import AttemptFailed, AttemptStarter
from checkpointing.jobs.attempts import AttemptRecord
from checkpointing.jobs.coordinator_runner import CoordinatorRunner
from checkpointing.jobs.driver_link import DriverGateway
from checkpointing.jobs.interrupts import Interrupts
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.long_action import LongAction, LongActions
from checkpointing.jobs.restore import claims_savepoint
from checkpointing.jobs.services import JobServices
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import CheckpointStorageKind
from checkpointing.model.messages import DriverState, FinishCause, Stop
from checkpointing.model.status import JobStatus
from checkpointing.storage.layout import new_savepoint_directory
from checkpointing.storage.verification import verify

logger = logging.getLogger(__name__)

# Seconds between attempts to take the savepoint. The last pause is repeated.
PAUSES_S = (0.5, 2.0, 10.0, 30.0)
# After this many failures a checkpoint is enough, because it may be on another storage.
TRIES_BEFORE_CHECKPOINT = 3
# An adopted driver does not wait longer than this for the storage of an earlier savepoint.
_LOOK_SILENCE_S = 5.0


class FinalSavepoint:
    """Takes the final savepoint and ends the job. `begin_if_due` may be called on every status report of the driver."""

    def __init__(
        self,
        record: JobRecord,
        services: JobServices,
        coordinator: CoordinatorRunner,
        gateway: DriverGateway,
        starter: AttemptStarter,
        interrupts: Interrupts,
        actions: LongActions,
    ) -> None:
        self._record = record
        self._services = services
        self._coordinator = coordinator
        self._gateway = gateway
        self._starter = starter
        self._interrupts = interrupts
        self._actions = actions
        self._job_id = record.graph.job_id
        self._taken_over: Attempt | None = None
        self._work: asyncio.Task[None] | None = None
        self._reported = ""

    def begin_if_due(self) -> None:
        """Begin to end the job if its driver reports ENDED and the job runs."""
        attempt = self._record.attempt
        if attempt is None or not self._is_due(attempt) or (self._work is not None and not self._work.done()):
            return
        self._work = asyncio.create_task(self._finish(attempt), name=f"final savepoint {attempt.number}")

    async def taken_over(self, record: AttemptRecord, former: Attempt | None) -> Attempt | None:
        """Return `former` with the final savepoint, if an earlier job manager completed one.

        Args:
            record: the record of the job's last attempt.
            former: that attempt, or None if its driver is gone. Without a driver, an attempt with a complete savepoint
                is returned as FINISHED.
        """
        savepoint = await self._completed_before(record)
        if savepoint is None:
            return former
        attempt = former or Attempt(record, None, self._services.clock, self._services.io_of(self._job_id))
        attempt.final_savepoint = Future()
        attempt.final_savepoint.set_result(savepoint)
        attempt.ended_by_itself = True
        self._taken_over = attempt
        if former is None:
            attempt.end(AttemptEnd(DriverState.FINISHED, finish_cause=FinishCause.AFTER_SAVEPOINT))
        return attempt

    async def _completed_before(self, record: AttemptRecord) -> CompletedCheckpoint | None:
        directory = record.final_savepoint
        if directory is None:
            return None
        try:
            io = self._services.storage_io_of(self._job_id)
            return await io.read(directory, partial(verify, directory), silence_s=_LOOK_SILENCE_S)
        except OSError as error:
            logger.info("job %s: the final savepoint that was begun is not complete: %s", self._job_id, error)
            return None

    def give_up(self) -> None:
        """Stop the work: the attempt is over, or the next job manager takes over the job."""
        if self._work is not None:
            self._work.cancel()

    def _is_due(self, attempt: Attempt) -> bool:
        is_current = attempt is self._record.attempt and not attempt.ended.done()
        runs = self._record.status is JobStatus.RUNNING and not self._interrupts.is_cancel_requested
        may_stop = attempt.stop_cause is None or attempt is self._taken_over
        return is_current and runs and attempt.state is DriverState.ENDED and may_stop

    async def _finish(self, attempt: Attempt) -> None:
        await self._actions.begin_when_free(LongAction.FINAL_SAVEPOINT)
        try:
            self._coordinator.stop_periodic()
            await self._save(attempt)
            if attempt.stop_cause is not None and not attempt.ended.done():
                await self._stop_driver(attempt)
        finally:
            self._actions.end()

    async def _save(self, attempt: Attempt) -> None:
        """Return once the state is saved or the attempt is over."""
        if attempt is self._taken_over:
            return
        if self._is_unchanged(attempt):
            attempt.has_nothing_to_save = True
            return
        failures = 0
        while self._is_due(attempt) and not await self._saved(attempt):
            failures += 1
            if failures >= TRIES_BEFORE_CHECKPOINT and await self._has_checkpoint():
                attempt.is_released = True
                return
            pause = PAUSES_S[min(failures, len(PAUSES_S)) - 1]
            await asyncio.wait({attempt.ended}, timeout=pause)

    def _is_unchanged(self, attempt: Attempt) -> bool:
        """Return whether the attempt ends with the state that it started with, which is safe.

        A savepoint that the job has claimed is subsumed by its checkpoints and removed, so it does not count.
        """
        restored, graph = attempt.record.restored_location, self._record.graph
        if attempt.has_advanced or attempt.record.local_directory is not None:
            return False
        is_new = restored is None and graph.savepoint_path is None and self._coordinator.latest_completed is None
        return is_new or (restored is not None and restored == graph.savepoint_path and not claims_savepoint(graph))

    async def _saved(self, attempt: Attempt) -> bool:
        target = self._record.config.savepoint_directory or self._services.settings.savepoint_directory
        try:
            directory = new_savepoint_directory(target, self._job_id)
            await self._starter.begin_final_savepoint(attempt, directory)
            savepoint = self._coordinator.trigger_savepoint(directory)
            await asyncio.wrap_future(savepoint)
        except (CheckpointException, AttemptFailed, HighAvailabilityError, OSError) as error:
            if self._is_due(attempt):
                self._report(f"The final savepoint failed and is tried again: {error}")
            return False
        attempt.final_savepoint = savepoint
        return True

    async def _has_checkpoint(self) -> bool:
        """Return whether a checkpoint could be taken instead. It stays when the job is FINISHED."""
        if self._record.config.storage is CheckpointStorageKind.JOBMANAGER:
            return False  # a checkpoint in memory would be lost with this process
        try:
            checkpoint = await asyncio.wrap_future(self._coordinator.trigger_checkpoint(full=True))
        except CheckpointException:
            return False
        self._report(f"No final savepoint could be taken. Checkpoint {checkpoint.checkpoint_id} stays instead.")
        return True

    async def _stop_driver(self, attempt: Attempt) -> None:
        """Send Stop to the driver. After the timeout the attempt counts as FINISHED, because its state is saved."""
        self._gateway.send(Stop(self._gateway.session_id, attempt.stop_cause))
        await asyncio.wait({attempt.ended}, timeout=self._services.settings.cancel_timeout_s)
        attempt.end(AttemptEnd(DriverState.FINISHED, finish_cause=attempt.stop_cause))

    def _report(self, message: str) -> None:
        if message != self._reported:
            self._record.record_exception(self._record.info("FinalSavepointFailed", message))
            logger.warning("job %s: %s", self._job_id, message)
        self._reported = message
