"""The start of a job under this job manager: it recovers what earlier job managers left, including a running driver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from checkpointing.ha.errors import CheckpointsUnreadable
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.attempt_starter import AttemptFailed, AttemptStarter
from checkpointing.jobs.attempts import AttemptRecordUnreadable
from checkpointing.jobs.final_savepoint import FinalSavepoint
from checkpointing.jobs.interrupts import Interrupts
from checkpointing.jobs.job_checkpoints import RECOVERY_ERRORS, JobCheckpoints
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.services import JobServices
from checkpointing.model.messages import DriverState
from checkpointing.model.status import JobStatus
from checkpointing.storage.errors import StorageSilent

T = TypeVar("T")

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_DAMAGED = (CheckpointsUnreadable, AttemptRecordUnreadable, ValueError)


class JobRecovery:
    """The recovery of one job. `run` is called once, before the job's first attempt under this job manager."""

    def __init__(
        self,
        record: JobRecord,
        services: JobServices,
        checkpoints: JobCheckpoints,
        starter: AttemptStarter,
        interrupts: Interrupts,
        final_savepoint: FinalSavepoint,
    ) -> None:
        self._record = record
        self._services = services
        self._checkpoints = checkpoints
        self._starter = starter
        self._interrupts = interrupts
        self._final_savepoint = final_savepoint
        self._last_reported = ("", "")

    async def run(self, end_grace_s: float) -> Attempt | None:
        """Return the last attempt, if its driver registered again or its final savepoint is complete.

        Return None if a new attempt may start. Raise Interrupted or AttemptFailed. The driver is adopted before the
        checkpoints are read, because its lease would expire while an unavailable storage is retried. The job is
        RUNNING, and takes checkpoints, once they are read.
        """
        former = await self._read("The record of its attempts", self._last_attempt)
        if former is None:
            await self._read_checkpoints()
            return None
        self._record.enter_attempt(former)
        if former.record.host == self._services.host_name:
            self._services.launch_queue.adopted(self._record.graph)
        self._record.move(JobStatus.RECONCILING, f"waiting for the driver of attempt {former.number}")
        watch = asyncio.create_task(former.watch(self._services.settings))
        try:
            await self._interrupts.wait_for(self._registration(former))
            if not former.registration.is_set():
                self._record.note_end(self._end_of(former))
                await self._interrupts.wait_for(self._starter.end(former, end_grace_s))
            await self._read_checkpoints()
        finally:
            watch.cancel()
        return former if former.registration.is_set() or former.stop_cause is not None else None

    def _end_of(self, former: Attempt) -> AttemptEnd:
        if former.stop_cause is not None:
            return AttemptEnd(DriverState.FINISHED, finish_cause=former.stop_cause)
        return AttemptEnd(DriverState.FAILED, self._record.info("DriverLost", "The driver did not come back."))

    async def _last_attempt(self) -> Attempt | None:
        last = await self._starter.read_record()
        self._record.has_earlier_attempts = not self._starter.is_new_run
        if last is None:
            return None
        former = await self._starter.former(last)
        return former if self._starter.is_new_run else await self._final_savepoint.taken_over(last, former)

    async def _read_checkpoints(self) -> None:
        starter, checkpoints = self._starter, self._checkpoints

        async def recover() -> None:
            await checkpoints.recover(starter.first_checkpoint_id, is_new_run=starter.is_new_run)

        await self._read("Its stored checkpoints", recover)
        for reason in checkpoints.unreadable:
            self._record.record_exception(self._record.info("CheckpointUnreadable", reason))
        starter.first_checkpoint_id = checkpoints.first_id

    async def _read(self, what: str, read: Callable[[], Awaitable[T]]) -> T:
        """Read with unlimited retries, because storage is often unavailable after a failover.

        Raise AttemptFailed if the stored data is damaged, and Interrupted if the job must end.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            limit_s = self._services.settings.storage_timeout_s
            silence = self._services.timer.call_later(
                limit_s, partial(self._report, what, StorageSilent("the storage", limit_s))
            )
            try:
                return await self._interrupts.wait_for(read())
            except _DAMAGED as error:
                info = self._record.info(type(error).__name__, f"{what} cannot be read: {error}", recoverable=False)
                raise AttemptFailed(info, keep_state=True) from error
            except RECOVERY_ERRORS as error:
                self._report(what, error)
            finally:
                silence.cancel()
            await self._interrupts.wait_for(asyncio.sleep(pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _report(self, what: str, error: Exception) -> None:
        """Log the failure. Record it as an exception only once for each kind of error in a row."""
        kind = type(error).__name__
        about = (what, kind)
        message = f"{what} cannot be read now, and the job manager retries: {error}"
        logger.warning("job %s: %s", self._record.graph.job_id, message)
        if about != self._last_reported:
            self._record.record_exception(self._record.info(kind, message))
        self._last_reported = about

    async def _registration(self, attempt: Attempt) -> None:
        registered = asyncio.ensure_future(attempt.registration.wait())
        try:
            first: list[asyncio.Future[Any]] = [registered, attempt.ended]
            is_waited_for = True
            while is_waited_for:
                done, _ = await asyncio.wait(
                    first,
                    timeout=self._services.settings.reconcile_window_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                is_waited_for = not done and attempt.process is not None and not attempt.process.has_started
        finally:
            registered.cancel()
