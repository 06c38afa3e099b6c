"""Handles the messages of a job's driver and answers them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from checkpointing.ha.errors import HighAvailabilityError
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.attempt_starter import AttemptFailed, AttemptStarter
from checkpointing.jobs.batch_numbers import BatchCounterUnreadable, must_extend
from checkpointing.jobs.driver_link import DriverChannel, DriverGateway
from checkpointing.jobs.final_savepoint import FinalSavepoint
from checkpointing.jobs.interrupts import Interrupts
from checkpointing.jobs.job_checkpoints import JobCheckpoints
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.services import JobServices
from checkpointing.model.messages import (
    AcknowledgeCheckpoint,
    BatchNumbersExtended,
    Cancel,
    DeclineCheckpoint,
    DelayCheckpoint,
    DriverMessage,
    DriverState,
    ExceptionInfo,
    FinishCause,
    Heartbeat,
    JobManagerMessage,
    NotifyComplete,
    Refused,
    Register,
    Registered,
    StatusUpdate,
    Stop,
    Vertex,
)
from checkpointing.model.status import JobStatus

logger = logging.getLogger(__name__)


class NotReady(Exception):
    """The leader of `session_id` is still reading what earlier job managers stored about the job."""

    def __init__(self, session_id: str) -> None:
        super().__init__("the leader has not read the stored data of the job yet")
        self.session_id = session_id


class DriverConversation:
    """The conversation with one job's driver. Each attempt has a new driver, each reconnect a new connection."""

    def __init__(
        self,
        record: JobRecord,
        services: JobServices,
        gateway: DriverGateway,
        starter: AttemptStarter,
        checkpoints: JobCheckpoints,
        interrupts: Interrupts,
        final_savepoint: FinalSavepoint,
    ) -> None:
        self._record = record
        self._services = services
        self._gateway = gateway
        self._session_id = gateway.session_id
        self._starter = starter
        self._checkpoints = checkpoints
        self._coordinator = checkpoints.coordinator
        self._interrupts = interrupts
        self._final_savepoint = final_savepoint
        self._adoption: asyncio.Future[None] | None = None
        self._extension: asyncio.Future[None] | None = None
        self._recording_sinks: asyncio.Future[None] | None = None

    def register(self, channel: DriverChannel, message: Register) -> None:
        """Answer the driver on `channel`. Raise NotReady while it is unknown whether this driver is the current one."""
        record, attempt = self._record, self._record.attempt
        if attempt is None and record.status is JobStatus.INITIALIZING:
            raise NotReady(self._session_id)
        if attempt is None or attempt.number != message.attempt or attempt.ended.done() or record.status.terminal:
            current = "none" if attempt is None else str(attempt.number)
            channel.send(Refused(f"attempt {message.attempt} is refused: the current attempt is {current}"))
            return
        if not attempt.record.has_secret(message.secret):
            logger.warning("job %s: refused a driver that does not know the attempt's secret", record.graph.job_id)
            channel.send(Refused(f"attempt {message.attempt}: the secret of its driver.json is needed"))
            channel.close()
            return
        attempt.registered(channel)
        self._adopt(attempt, message.pid)
        attempt.last_batches = dict(message.last_batches)
        attempt.at_least_once = message.at_least_once
        attempt.has_advanced = message.has_advanced
        self._gateway.channel = channel
        channel.send(self._registered(attempt))
        for repeated in self._repeated(attempt):
            channel.send(repeated)
        self._set_driver_state(attempt, message.state, message.vertices, None)

    def receive(self, channel: DriverChannel, message: DriverMessage) -> None:
        """Handle a driver's message. Refuse a driver of an old attempt; drop a message of an old session."""
        attempt = self._record.attempt
        if isinstance(message, Register):
            self.register(channel, message)
            return
        if attempt is None or message.attempt != attempt.number or channel is not attempt.channel:
            channel.send(Refused(f"attempt {message.attempt} is not the current one"))
            return
        attempt.record_contact()
        if message.session_id != self._session_id:
            logger.info("job %s: a %s of an old session is dropped", self._record.graph.job_id, message.type)
            return
        match message:
            case Heartbeat():
                attempt.queries = {**attempt.queries, **message.queries}
                attempt.executors = message.executors
                self._report_first_commit(attempt)
                self._extend_numbers_if_due(attempt)
            case AcknowledgeCheckpoint():
                self._checkpoints.receive_acknowledge(message)
            case DeclineCheckpoint():
                self._coordinator.decline(message)
            case DelayCheckpoint():
                self._coordinator.delay(message)
            case StatusUpdate():
                attempt.at_least_once = message.at_least_once
                attempt.has_advanced = message.has_advanced
                attempt.queries = {**attempt.queries, **message.queries}
                self._set_driver_state(
                    attempt, message.state, message.vertices, message.exception, message.finish_cause
                )

    def _report_first_commit(self, attempt: Attempt) -> None:
        committed = any(progress.batches for progress in attempt.queries.values())
        if committed and self._record.status is JobStatus.RUNNING:
            self._checkpoints.batch_committed(attempt.number)

    def checkpoints_are_read(self) -> None:
        """Treat an adopted driver, and so its job, as running now that the checkpoints are read."""
        attempt = self._record.attempt
        if attempt is not None and attempt.state in (DriverState.RUNNING, DriverState.ENDED):
            self._job_runs(attempt)
            self._final_savepoint.begin_if_due()

    def disconnected(self, channel: DriverChannel) -> None:
        """Forget the connection.

        The driver may reconnect; the heartbeat timeout and its process decide whether it is lost.
        """
        if self._gateway.channel is channel:
            self._gateway.channel = None

    def _adopt(self, attempt: Attempt, pid: int) -> None:
        if attempt.process is None:
            self._adoption = asyncio.ensure_future(self._starter.adopt(attempt, pid))

    def _extend_numbers_if_due(self, attempt: Attempt) -> None:
        if attempt.has_last_numbers or self._extension is not None:
            return
        if must_extend(attempt.record.batch_numbers, attempt.greatest_batch):
            self._extension = asyncio.ensure_future(self._extend_numbers(attempt))

    async def _extend_numbers(self, attempt: Attempt) -> None:
        """Reserve more batch numbers for the attempt. After an error the next heartbeat tries again."""
        job_id = self._record.graph.job_id
        try:
            end = await self._starter.extend_numbers(attempt)
        except (AttemptFailed, BatchCounterUnreadable, HighAvailabilityError, OSError) as error:
            logger.warning("job %s: its batch numbers cannot be extended now: %s", job_id, error)
        else:
            attempt.has_last_numbers = end is None
            if end is None:
                logger.info("job %s: another attempt has the next batch numbers; they are not extended", job_id)
            elif attempt is self._record.attempt:
                self._gateway.send(BatchNumbersExtended(self._session_id, end))
        finally:
            self._extension = None

    async def _note_sinks(self, attempt: Attempt) -> None:
        """Record the sinks. If this fails now, the next change of the record stores them."""
        try:
            await self._starter.note_sinks(attempt)
        except (AttemptFailed, HighAvailabilityError, OSError) as error:
            logger.warning("job %s: its sinks cannot be recorded now: %s", self._record.graph.job_id, error)

    def _registered(self, attempt: Attempt) -> Registered:
        """Return the answer to Register.

        It names a complete final savepoint, too: the driver drops all other checkpoints.
        """
        settings, final = self._services.settings, attempt.stopped_with
        return Registered(
            session_id=self._session_id,
            pending_checkpoints=(*self._coordinator.pending_ids, *([final.checkpoint_id] if final else ())),
            heartbeat_interval_ms=round(settings.heartbeat_interval_s * 1000),
            heartbeat_timeout_ms=round(settings.heartbeat_timeout_s * 1000),
            batch_numbers_end=attempt.record.batch_numbers.end,
        )

    def _repeated(self, attempt: Attempt) -> Sequence[JobManagerMessage]:
        """Return the orders that may have been lost with the driver's earlier connection."""
        if self._interrupts.is_cancel_requested:
            return [Cancel(self._session_id)]
        if attempt.stop_cause is None:
            return []
        stop, final = Stop(self._session_id, attempt.stop_cause), attempt.stopped_with
        return [stop] if final is None else [NotifyComplete(self._session_id, final.checkpoint_id, None), stop]

    def _set_driver_state(
        self,
        attempt: Attempt,
        state: DriverState,
        vertices: tuple[Vertex, ...],
        exception: ExceptionInfo | None,
        finish_cause: FinishCause | None = None,
    ) -> None:
        attempt.state = state
        if vertices and vertices != attempt.vertices:
            attempt.vertices = vertices
            self._recording_sinks = asyncio.ensure_future(self._note_sinks(attempt))
        queue, job_id = self._services.launch_queue, self._record.graph.job_id
        if state is DriverState.INITIALIZING:
            queue.registered(job_id)
        else:
            queue.started(job_id)
        match state:
            case DriverState.RUNNING:
                self._job_runs(attempt)
            case DriverState.ENDED:
                attempt.ended_by_itself = True
                self._job_runs(attempt)
                self._final_savepoint.begin_if_due()
            case DriverState.FINISHED | DriverState.CANCELED:
                attempt.end(AttemptEnd(state, finish_cause=finish_cause))
            case DriverState.FAILED:
                unsaid = self._record.info("DriverFailed", "The driver failed without saying why.")
                attempt.end(AttemptEnd(state, exception or unsaid))

    def _job_runs(self, attempt: Attempt) -> None:
        status = self._record.status
        if status not in (JobStatus.CREATED, JobStatus.RECONCILING) or attempt.ended.done():
            return
        if not self._checkpoints.is_recovered:
            return
        attempt.running_since_ms = self._services.clock.now_ms()
        how = "was adopted" if status is JobStatus.RECONCILING else "runs"
        self._record.move(JobStatus.RUNNING, f"the driver of attempt {attempt.number} {how}")
        self._coordinator.start_periodic()
