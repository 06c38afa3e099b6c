"""What people and the dispatcher ask of a job: cancel, suspend, checkpoints, savepoints, stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.coordinator.coordinator import CheckpointCoordinator
from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.jobs.attempt import AttemptEnd
from checkpointing.jobs.driver_link import DriverGateway
from checkpointing.jobs.interrupts import Interrupts, Request
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.status import JobStatus
from checkpointing.messages import DriverState, Stop

NO_DRAIN = (
    "A PySpark job cannot be drained: nothing can move its watermark to the end of time, so windows and timers still "
    "open would not be closed. It goes on as it was. Stop it without drain: the savepoint holds what is open."
)


class OperationRefused(Exception):
    """Not of this job, or not in the state it is in; the text says why."""


class StopWithSavepointStopping(Exception):
    """The savepoint is complete and usable, but the job did not finish (Flink's StopWithSavepointStoppingException)."""


class JobRequests:
    """`wait_ended` returns once the job has ended; `stop_timeout_s` is how long a driver may take to finish."""

    def __init__(
        self,
        record: JobRecord,
        coordinator: CheckpointCoordinator,
        gateway: DriverGateway,
        interrupts: Interrupts,
        wait_ended: Callable[[], Awaitable[JobStatus]],
        stop_timeout_s: float,
    ) -> None:
        self._record = record
        self._coordinator = coordinator
        self._gateway = gateway
        self._interrupts = interrupts
        self._wait_ended = wait_ended
        self._stop_timeout_s = stop_timeout_s
        self._stopping = False

    @property
    def is_stopping(self) -> bool:
        """A stop-with-savepoint is on its way."""
        return self._stopping

    def cancel(self) -> None:
        """Asked again, or of a canceled job, it changes nothing; OperationRefused when the job ended in another way."""
        status = self._record.status
        if status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.SUSPENDED):
            raise OperationRefused(already_ended(status))
        self._interrupts.ask(Request.CANCEL)

    def suspend(self, *, end_driver: bool) -> None:
        """This job manager leads no longer, or shuts down."""
        self._interrupts.ask(Request.SHUTDOWN if end_driver else Request.SUSPEND)

    async def trigger_checkpoint(self, *, full: bool) -> int:
        """The completed checkpoint's id; CheckpointException, OperationRefused."""
        self._require_running()
        return (await _result(self._coordinator.trigger_checkpoint(full))).checkpoint_id

    async def trigger_savepoint(self, target_directory: str, *, cancel_job: bool) -> str:
        """The savepoint's location. `cancel_job`: once it is complete the job is canceled; if it fails, it goes on."""
        self._require_running()
        if cancel_job:
            self._coordinator.stop_periodic()
        try:
            completed = await _result(self._coordinator.trigger_savepoint(target_directory))
        except CheckpointException:
            if cancel_job:
                self._resume_checkpoints()
            raise
        if cancel_job:
            self.cancel()
        return completed.location

    async def stop_with_savepoint(self, target_directory: str, *, drain: bool) -> str:
        """The savepoint's location, once the job is FINISHED. A failed savepoint leaves the job running."""
        self._require_running()
        if drain:
            raise OperationRefused(NO_DRAIN)
        if self._stopping:
            raise OperationRefused("A stop-with-savepoint is already in progress.")
        self._stopping = True
        try:
            location = await self._final_savepoint(target_directory)
            await self._finish_after(location)
        finally:
            self._stopping = False
        return location

    async def _final_savepoint(self, target_directory: str) -> str:
        self._coordinator.stop_periodic()
        try:
            return (await _result(self._coordinator.trigger_synchronous_savepoint(target_directory))).location
        except CheckpointException:
            self._resume_checkpoints()
            raise

    async def _finish_after(self, location: str) -> None:
        attempt = self._record.attempt
        assert attempt is not None  # noqa: S101  (a savepoint of a running job has one)
        self._gateway.send(Stop(self._gateway.session_id))
        await asyncio.wait({attempt.ended}, timeout=self._stop_timeout_s)
        if not attempt.ended.done():
            late = self._record.info("StopTimeout", "The driver did not finish after Stop.")
            attempt.end(AttemptEnd(DriverState.FAILED, late))
        if attempt.ended.result().state is not DriverState.FINISHED:
            raise StopWithSavepointStopping(
                f"A savepoint has been created at: {location}, but the corresponding job {self._record.graph.job_id} "
                "failed during stopping. The savepoint is consistent and can be restored from."
            )
        await self._wait_ended()

    def _resume_checkpoints(self) -> None:
        if self._record.status is JobStatus.RUNNING and not self._interrupts.cancel_asked:
            self._coordinator.start_periodic()

    def _require_running(self) -> None:
        if self._record.status is not JobStatus.RUNNING:
            raise OperationRefused(f"The job is {self._record.status.value}, not RUNNING.")


async def _result(future: Future[CompletedCheckpoint]) -> CompletedCheckpoint:
    return await asyncio.wrap_future(future)


def already_ended(status: JobStatus) -> str:
    return f"Job cancellation failed because the job has already reached another terminal state ({status.value})."
