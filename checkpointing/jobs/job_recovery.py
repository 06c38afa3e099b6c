"""The start of a job under this job manager: what earlier ones left of it, its driver included."""

from __future__ import annotations

import asyncio
from typing import Any

from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.attempt_starter import AttemptFailed, AttemptStarter
from checkpointing.jobs.attempts import AttemptRecord, AttemptRecordUnreadable
from checkpointing.jobs.interrupts import Interrupts
from checkpointing.jobs.job_checkpoints import RECOVERY_ERRORS, JobCheckpoints
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.services import JobServices
from checkpointing.jobs.status import JobStatus
from checkpointing.messages import DriverState

_RETRIES_AFTER_S = (1.0, 2.0, 4.0, 8.0)


class JobRecovery:
    """Run once, before the job's first attempt here."""

    def __init__(
        self,
        record: JobRecord,
        services: JobServices,
        checkpoints: JobCheckpoints,
        starter: AttemptStarter,
        interrupts: Interrupts,
    ) -> None:
        self._record = record
        self._services = services
        self._checkpoints = checkpoints
        self._starter = starter
        self._interrupts = interrupts

    async def run(self, end_grace_s: float) -> Attempt | None:
        """The last attempt, its driver registered again; None: a new one may start. Interrupted, AttemptFailed."""
        last = await self._read()
        former = self._starter.former(last) if last is not None else None
        if former is None:
            return None
        self._record.enter_attempt(former)
        self._record.move(JobStatus.RECONCILING, f"waiting for the driver of attempt {former.number}")
        watch = asyncio.create_task(former.watch(self._services.settings))
        try:
            await self._interrupts.wait_for(self._registration(former))
        finally:
            watch.cancel()
        if former.registration.is_set():
            return former
        lost = self._record.info("DriverLost", "The driver did not come back.")
        self._record.note_end(AttemptEnd(DriverState.FAILED, lost))
        await self._interrupts.wait_for(self._starter.end(former, end_grace_s))
        return None

    async def _read(self) -> AttemptRecord | None:
        """Retried for a while: high availability data are often away just when leadership moves."""
        for delay in (*_RETRIES_AFTER_S, None):
            try:
                last = await self._starter.read_record()
                starter = self._starter
                await self._interrupts.wait_for(
                    self._checkpoints.recover(starter.first_checkpoint_id, is_new_life=starter.is_new_life)
                )
            except (*RECOVERY_ERRORS, AttemptRecordUnreadable) as error:
                message = f"The job's stored state cannot be read: {error}"
                info = self._record.info(type(error).__name__, message, recoverable=False)
                self._record.record_exception(info)
                if delay is None:
                    raise AttemptFailed(info, keep_state=True) from error
                await self._interrupts.wait_for(asyncio.sleep(delay))
            else:
                for reason in self._checkpoints.unreadable:
                    self._record.record_exception(self._record.info("CheckpointUnreadable", reason))
                self._starter.first_checkpoint_id = self._checkpoints.first_id
                return last
        raise AssertionError("the last delay raises")

    async def _registration(self, attempt: Attempt) -> None:
        registered = asyncio.ensure_future(attempt.registration.wait())
        try:
            first: list[asyncio.Future[Any]] = [registered, attempt.ended]
            await asyncio.wait(
                first,
                timeout=self._services.settings.reconcile_window_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            registered.cancel()
