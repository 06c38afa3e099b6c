"""The requests of people and of the dispatcher to a job: cancel, suspend, checkpoint, savepoint, stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future

from checkpointing.coordinator.reasons import CheckpointException
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.coordinator_runner import CoordinatorRunner
from checkpointing.jobs.driver_link import DriverGateway
from checkpointing.jobs.interrupts import Interrupts, Request
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.long_action import LongAction, LongActions, OperationRefused
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import DriverState, FinishCause, Stop
from checkpointing.model.status import JobStatus

NO_DRAIN = (
    "A PySpark job cannot be drained: nothing can move its watermark to the end of time, so open windows and "
    "timers would not be closed. The job keeps running. Stop it without drain: the savepoint contains them."
)


class StopWithSavepointStopping(Exception):
    """The savepoint is complete and usable, but the job did not finish (Flink's StopWithSavepointStoppingException)."""


class JobRequests:
    """Performs requests to one job. `wait_ended` returns once the job has ended.

    `stop_timeout_s` limits how long a driver may take to finish.
    """

    def __init__(
        self,
        record: JobRecord,
        coordinator: CoordinatorRunner,
        gateway: DriverGateway,
        interrupts: Interrupts,
        actions: LongActions,
        wait_ended: Callable[[], Awaitable[JobStatus]],
        stop_timeout_s: float,
    ) -> None:
        self._record = record
        self._coordinator = coordinator
        self._gateway = gateway
        self._interrupts = interrupts
        self._actions = actions
        self._wait_ended = wait_ended
        self._stop_timeout_s = stop_timeout_s

    def cancel(self) -> None:
        """Cancel the job; a second request changes nothing. Raise OperationRefused if the job ended in another way."""
        status = self._record.status
        if status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.SUSPENDED):
            raise OperationRefused(already_ended(status))
        self._interrupts.request(Request.CANCEL)

    def suspend(self, *, end_driver: bool) -> None:
        """Leave the job, because this job manager leads no longer or shuts down."""
        self._interrupts.request(Request.SHUTDOWN if end_driver else Request.SUSPEND)

    async def trigger_checkpoint(self, *, full: bool) -> int:
        """Take a checkpoint and return its ID. Raise CheckpointException or OperationRefused."""
        self._require_running()
        return (await _result(self._coordinator.trigger_checkpoint(full))).checkpoint_id

    async def trigger_savepoint(self, target_directory: str, *, cancel_job: bool) -> str:
        """Take a savepoint and return its location.

        Args:
            target_directory: where the savepoint's own directory is made.
            cancel_job: cancel the job once the savepoint is complete. The job runs on if the savepoint fails.

        Raises:
            CheckpointException: the savepoint failed.
            OperationRefused: the job does not run, or another long action is in progress (`cancel_job` only).
        """
        self._require_running()
        if not cancel_job:
            return (await _result(self._coordinator.trigger_savepoint(target_directory))).location
        with self._exclusive(LongAction.CANCEL), self._checkpoints_paused():
            completed = await _result(self._coordinator.trigger_savepoint(target_directory))
            self.cancel()
        return completed.location

    async def stop_with_savepoint(self, target_directory: str, *, drain: bool) -> str:
        """Take a savepoint, end the job, and return the savepoint's location once the job is FINISHED.

        The job runs on if the savepoint fails, for any reason.

        Raises:
            CheckpointException: the savepoint failed.
            OperationRefused: the job is not running, `drain` is requested, or another savepoint or stop is in progress.
            StopWithSavepointStopping: the savepoint is complete, but the driver did not finish.
        """
        attempt = self._require_running()
        if drain:
            raise OperationRefused(NO_DRAIN)
        with self._exclusive(LongAction.STOP):
            with self._checkpoints_paused():
                attempt.final_savepoint = self._coordinator.trigger_synchronous_savepoint(target_directory)
                location = (await _result(attempt.final_savepoint)).location
            await self._finish_after(attempt, location)
        return location

    async def _finish_after(self, attempt: Attempt, location: str) -> None:
        """Order the driver to end. The conversation repeats the order to a driver that is not connected now."""
        self._gateway.send(Stop(self._gateway.session_id, FinishCause.AFTER_SAVEPOINT))
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

    @contextlib.contextmanager
    def _exclusive(self, action: LongAction) -> Iterator[None]:
        self._actions.begin(action)
        try:
            yield
        finally:
            self._actions.end()

    @contextlib.contextmanager
    def _checkpoints_paused(self) -> Iterator[None]:
        """Stop periodic checkpoints. Start them again if the savepoint fails."""
        self._coordinator.stop_periodic()
        try:
            yield
        except CheckpointException:
            self._resume_checkpoints()
            raise

    def _resume_checkpoints(self) -> None:
        if self._record.status is JobStatus.RUNNING and not self._interrupts.is_cancel_requested:
            self._coordinator.start_periodic()

    def _require_running(self) -> Attempt:
        attempt = self._record.attempt
        if self._record.status is not JobStatus.RUNNING or attempt is None:
            raise OperationRefused(f"The job is {self._record.status.value}, not RUNNING.")
        return attempt


async def _result(future: Future[CompletedCheckpoint]) -> CompletedCheckpoint:
    return await asyncio.wrap_future(future)


def already_ended(status: JobStatus) -> str:
    return f"Job cancellation failed because the job has already reached another terminal state ({status.value})."
