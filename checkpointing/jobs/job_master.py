"""One job under this job manager: its status, its attempts, its checkpoints.

All methods run on the job manager's main thread (the event loop). `run` is the job's whole life; everything else
reports something to it or asks something of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from checkpointing.configuration import CheckpointConfiguration
from checkpointing.coordinator.checkpoint import CompletedCheckpoint
from checkpointing.coordinator.ports import CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.attempt_starter import AttemptFailed, AttemptStarter
from checkpointing.jobs.attempts import AttemptRecord, AttemptRecordUnreadable
from checkpointing.jobs.driver_link import DriverChannel, DriverGateway
from checkpointing.jobs.exceptions import ExceptionHistory
from checkpointing.jobs.graph import JobGraph
from checkpointing.jobs.interrupts import Interrupted, Interrupts, Request
from checkpointing.jobs.job_checkpoints import RECOVERY_ERRORS, JobCheckpoints
from checkpointing.jobs.restart import restart_strategy
from checkpointing.jobs.services import JobServices
from checkpointing.jobs.state import JobState, Move
from checkpointing.jobs.status import JobStatus
from checkpointing.messages import (
    AcknowledgeCheckpoint,
    Cancel,
    DeclineCheckpoint,
    DriverMessage,
    DriverState,
    ExceptionInfo,
    Heartbeat,
    Refused,
    Register,
    Registered,
    StatusUpdate,
    Stop,
    Vertex,
)

logger = logging.getLogger(__name__)

# A driver that was told to end, or that says it failed, gets this long before it is killed.
END_GRACE_S = 10.0
ATTEMPTS_SHOWN = 20


class OperationRefused(Exception):
    """The job is not in a state for this; the text says in which it is."""


class NotReady(Exception):
    """The job is still reading what earlier job managers left."""


class StopWithSavepointStopping(Exception):
    """The savepoint is complete and usable, but the job did not finish (Flink's StopWithSavepointStoppingException)."""


class JobMaster:
    def __init__(
        self,
        graph: JobGraph,
        session_id: str,
        services: JobServices,
        record_result: Callable[[JobMaster], Awaitable[None]],
        *,
        recovered: bool,
    ) -> None:
        """InvalidConfiguration when the graph's settings are not allowed.

        `record_result` makes the job's end durable; called in the globally terminal status, before anything is removed.
        """
        self.graph = graph
        self.config = CheckpointConfiguration.parse(graph.configuration)
        self.strategy = restart_strategy(graph.configuration, services.random)
        self.exceptions = ExceptionHistory()
        self.attempt: Attempt | None = None
        self.attempts: list[Attempt] = []
        self.num_restarts = 0
        self.state = JobState(services.clock, "recovered" if recovered else "submitted", self._log_move)
        self.failure: ExceptionInfo | None = None
        self._session_id = session_id
        self._services = services
        self._record_result = record_result
        self._interrupts = Interrupts()
        self._gateway = DriverGateway(session_id)
        self.checkpoints = JobCheckpoints(
            graph, self.config, services, self._gateway, self._plan, self._checkpoints_failed
        )
        self._starter = AttemptStarter(graph, services, self.checkpoints.store, self._record_exception)
        self._keep_state = False
        self._stopping = False
        self._ended: asyncio.Future[JobStatus] = asyncio.get_running_loop().create_future()

    @property
    def status(self) -> JobStatus:
        return self.state.status

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        return self.attempt.vertices if self.attempt is not None else ()

    # --- the job's life -------------------------------------------------------------------------------------------

    async def run(self) -> JobStatus:
        """The job from here to its terminal status, which is returned. Raises nothing but CancelledError."""
        try:
            status, cause = await self._live()
        except Interrupted as interrupted:
            status, cause = await self._wind_down(interrupted.request)
        except Exception as error:
            # A mistake of ours must not leave a job that nobody minds: it fails, and nothing of it is removed.
            logger.exception("job %s: its master failed", self.graph.job_id)
            status, cause = await self._broken(error)
        await self._conclude(status, cause)
        return status

    async def wait_ended(self) -> JobStatus:
        return await asyncio.shield(self._ended)

    async def _live(self) -> tuple[JobStatus, str]:
        try:
            attempt = await self._initialize()
        except AttemptFailed as failed:
            return self._failed_for_good(failed)
        while True:
            try:
                if attempt is None:
                    attempt = await self._start_attempt()
                end = await self._watched(attempt)
            except AttemptFailed as failed:
                if failed.keep_state:
                    return self._failed_for_good(failed)
                end = AttemptEnd(DriverState.FAILED, failed.info)
                self._note_end(end)
            if end.state is DriverState.FINISHED:
                return self._finished()
            info = end.exception or self._info(
                "DriverCanceled", "The driver ended as CANCELED, though nobody had asked."
            )
            suppressed = await self._fail(info)
            if suppressed is not None:
                return JobStatus.FAILED, suppressed
            attempt = None

    async def _initialize(self) -> Attempt | None:
        """Read what earlier job managers left; the driver of their last attempt, when it came back."""
        record = await self._recover()
        former = self._starter.former(record) if record is not None else None
        if former is None:
            return None
        self._enter_attempt(former)
        self._move(JobStatus.RECONCILING, f"waiting for the driver of attempt {former.number}")
        watch = asyncio.create_task(self._watch(former))
        try:
            await self._interrupts.wait_for(self._registration(former))
        finally:
            watch.cancel()
        if former.registration.is_set():
            return former
        self._note_end(AttemptEnd(DriverState.FAILED, self._info("DriverLost", "The driver did not come back.")))
        await self._interrupts.wait_for(self._starter.end(former, END_GRACE_S))
        return None

    async def _recover(self) -> AttemptRecord | None:
        """Retried for a while: high availability data are often away just when leadership moves."""
        delays = [1.0, 2.0, 4.0, 8.0, None]
        for delay in delays:
            try:
                record = await self._starter.read_record()
                await self._interrupts.wait_for(self.checkpoints.recover())
            except (*RECOVERY_ERRORS, AttemptRecordUnreadable) as error:
                info = self._info(
                    type(error).__name__, f"The job's stored state cannot be read: {error}", recoverable=False
                )
                self._record_exception(info)
                if delay is None:
                    raise AttemptFailed(info, keep_state=True) from error
                await self._interrupts.wait_for(asyncio.sleep(delay))
            else:
                for reason in self.checkpoints.unreadable:
                    self._record_exception(self._info("CheckpointUnreadable", reason))
                return record
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

    async def _start_attempt(self) -> Attempt:
        self._move(JobStatus.CREATED, "ready to start an attempt")
        await self._interrupts.wait_for(self._starter.wait_until_free())
        await self._interrupts.wait_for(self.checkpoints.settled())
        restore = await self._interrupts.wait_for(self._starter.choose_restore())
        if restore is not None:
            self.checkpoints.coordinator.restored(restore.checkpoint, restore.from_savepoint_path)
        # From here to the process's start nothing interrupts: a driver that nobody knows of must not come about.
        attempt = await self._starter.prepare(restore)
        self._enter_attempt(attempt)
        await self._starter.launch(attempt, restore)
        return attempt

    async def _watched(self, attempt: Attempt) -> AttemptEnd:
        watch = asyncio.create_task(self._watch(attempt))
        try:
            return await self._interrupts.wait_for(attempt.ended)
        finally:
            watch.cancel()

    async def _watch(self, attempt: Attempt) -> None:
        settings = self._services.settings
        await attempt.watch(
            settings.heartbeat_interval_s, settings.heartbeat_timeout_s, settings.registration_timeout_s
        )

    def _finished(self) -> tuple[JobStatus, str]:
        if self.status is not JobStatus.RUNNING:
            self._move(JobStatus.RUNNING, "the driver ran")
        return JobStatus.FINISHED, "the driver finished"

    async def _fail(self, info: ExceptionInfo) -> str | None:
        """From FAILING to RESTARTING, its delay over; or why there is no restart."""
        self._record_exception(info)
        self._move(JobStatus.FAILING, info.message)
        self._halt_checkpoints(CheckpointFailureReason.TASK_FAILURE)
        failed_s = self._services.clock.monotonic()
        if self.attempt is not None:
            await self._interrupts.wait_for(self._starter.end(self.attempt, END_GRACE_S))
        is_new_attempt = self.strategy.notify_failure(failed_s)
        if not info.recoverable:
            return f"The failure is not recoverable: {info.message}"
        if not self.strategy.can_restart(failed_s):
            return f"Recovery is suppressed by the restart strategy ({self.strategy.describe()}): {info.message}"
        self.num_restarts += is_new_attempt
        delay = self.strategy.backoff_s()
        self._move(JobStatus.RESTARTING, f"next attempt in {delay:g} s")
        await self._interrupts.wait_for(asyncio.sleep(delay))
        return None

    def _failed_for_good(self, failed: AttemptFailed) -> tuple[JobStatus, str]:
        self._keep_state = self._keep_state or failed.keep_state
        if failed.info not in [entry.info for entry in self.exceptions.entries]:
            self._record_exception(failed.info)
        self._move_to_failing(failed.info.message)
        return JobStatus.FAILED, failed.info.message

    def _move_to_failing(self, cause: str) -> None:
        """The table leads to FAILED from FAILING; a job that has not started, or waits, may go there at once."""
        if self.status in (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RECONCILING):
            self._move(JobStatus.FAILING, cause)

    async def _wind_down(self, request: Request) -> tuple[JobStatus, str]:
        try:
            if request is Request.CANCEL:
                await self._end_cancelled()
                return JobStatus.CANCELED, "canceled on request"
        except Interrupted as interrupted:
            request = interrupted.request
        self._halt_checkpoints(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        if request is Request.SHUTDOWN:
            # Bounded: whether the driver gave up its claim cannot always be asked while everything shuts down.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end_driver(), self._services.settings.cancel_timeout_s + 3 * END_GRACE_S)
            return JobStatus.SUSPENDED, "the job manager shuts down; the driver was ended"
        return JobStatus.SUSPENDED, "this job manager is no longer the leader; the driver goes on"

    async def _end_cancelled(self) -> None:
        self._move(JobStatus.CANCELLING, "canceled on request")
        self._halt_checkpoints(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        await self._interrupts.wait_for(self._end_driver(), cancelling=True)

    async def _end_driver(self) -> None:
        """Ask the driver to end its queries; past the time-out its process is ended.

        One that runs none yet is ended at once: while it starts Spark it hears nothing, and it has nothing to lose.
        """
        attempt = self.attempt
        if attempt is None or attempt.record.ended:
            return
        if attempt.channel is not None and attempt.state is DriverState.RUNNING:
            self._gateway.send(Cancel(self._session_id))
            await asyncio.wait({attempt.ended}, timeout=self._services.settings.cancel_timeout_s)
        ends_itself = attempt.ended.done()
        attempt.end(AttemptEnd(DriverState.CANCELED))
        await self._starter.end(attempt, END_GRACE_S, ends_itself=ends_itself)

    async def _broken(self, error: Exception) -> tuple[JobStatus, str]:
        self._keep_state = True
        self._record_exception(self._info(type(error).__name__, f"The job's master failed: {error}", recoverable=False))
        self._halt_checkpoints(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        await self._end_driver()
        self._move_to_failing(str(error))
        return JobStatus.FAILED, f"The job's master failed: {error}"

    async def _conclude(self, status: JobStatus, cause: str) -> None:
        if self.attempt is not None:
            if self.attempt.channel is not None:
                self.attempt.channel.close()
            self.attempt.end(AttemptEnd(DriverState.CANCELED))
        self._gateway.channel = None
        if status is JobStatus.FAILED and self.exceptions.entries:
            self.failure = self.exceptions.entries[0].info
        self._move(status, cause)
        if status.globally_terminal:
            await self._record_result(self)
        if status is JobStatus.FINISHED and self.attempt is not None:
            with contextlib.suppress(Interrupted):
                await self._interrupts.wait_for(
                    self._starter.end(self.attempt, END_GRACE_S, ends_itself=True), cancelling=True
                )
        if not self._keep_state:
            await self.checkpoints.shutdown(status)
        if not self._ended.done():
            self._ended.set_result(status)

    # --- what is asked of the job -----------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Asked again, or of a canceled job, it changes nothing; OperationRefused when the job ended in another way."""
        if self.status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.SUSPENDED):
            raise OperationRefused(
                "Job cancellation failed because the job has already reached another terminal state "
                f"({self.status.value})."
            )
        self._interrupts.ask(Request.CANCEL)

    def suspend(self, *, end_driver: bool) -> None:
        self._interrupts.ask(Request.SHUTDOWN if end_driver else Request.SUSPEND)

    async def trigger_checkpoint(self, *, full: bool) -> int:
        """The completed checkpoint's id; CheckpointException, OperationRefused."""
        self._require_running()
        return (await _result(self.checkpoints.coordinator.trigger_checkpoint(full))).checkpoint_id

    async def trigger_savepoint(self, target_directory: str, *, cancel_job: bool) -> str:
        """The savepoint's location. `cancel_job`: once it is complete the job is canceled; if it fails, it goes on."""
        self._require_running()
        if cancel_job:
            self.checkpoints.coordinator.stop_periodic()
        try:
            completed = await _result(self.checkpoints.coordinator.trigger_savepoint(target_directory))
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
        if self._stopping:
            raise OperationRefused("A stop-with-savepoint is already in progress.")
        self._stopping = True
        try:
            location = await self._final_savepoint(target_directory, drain=drain)
            await self._finish_after(location)
        finally:
            self._stopping = False
        return location

    async def _final_savepoint(self, target_directory: str, *, drain: bool) -> str:
        coordinator = self.checkpoints.coordinator
        coordinator.stop_periodic()
        try:
            return (await _result(coordinator.trigger_synchronous_savepoint(target_directory, drain))).location
        except CheckpointException:
            self._resume_checkpoints()
            raise

    async def _finish_after(self, location: str) -> None:
        attempt = self.attempt
        assert attempt is not None  # noqa: S101  (a savepoint of a running job has one)
        self._gateway.send(Stop(self._session_id))
        await asyncio.wait({attempt.ended}, timeout=self._services.settings.cancel_timeout_s)
        if not attempt.ended.done():
            attempt.end(
                AttemptEnd(DriverState.FAILED, self._info("StopTimeout", "The driver did not finish after Stop."))
            )
        if attempt.ended.result().state is not DriverState.FINISHED:
            raise StopWithSavepointStopping(
                f"A savepoint has been created at: {location}, but the corresponding job {self.graph.job_id} failed "
                "during stopping. The savepoint is consistent and can be restored from."
            )
        await self.wait_ended()

    def _resume_checkpoints(self) -> None:
        if self.status is JobStatus.RUNNING and not self._interrupts.cancel_asked:
            self.checkpoints.coordinator.start_periodic()

    def _require_running(self) -> None:
        if self.status is not JobStatus.RUNNING:
            raise OperationRefused(f"The job is {self.status.value}, not RUNNING.")

    # --- what the driver says ---------------------------------------------------------------------------------------

    def register(self, channel: DriverChannel, message: Register) -> bool:
        """Answer the driver on `channel`; False: it was refused. NotReady: too early to know whether it is wanted."""
        attempt = self.attempt
        if attempt is None and self.status is JobStatus.INITIALIZING:
            raise NotReady
        if attempt is None or attempt.number != message.attempt or attempt.ended.done() or self.status.terminal:
            current = "none" if attempt is None else str(attempt.number)
            channel.send(Refused(f"attempt {message.attempt} is not wanted: the current one is {current}"))
            return False
        attempt.registered(channel)
        self._starter.adopt(attempt, message.pid)
        attempt.last_batches = dict(message.last_batches)
        self._gateway.channel = channel
        settings = self._services.settings
        channel.send(
            Registered(
                session_id=self._session_id,
                pending_checkpoints=self.checkpoints.coordinator.pending_ids,
                heartbeat_interval_ms=round(settings.heartbeat_interval_s * 1000),
                heartbeat_timeout_ms=round(settings.heartbeat_timeout_s * 1000),
            )
        )
        if self._interrupts.cancel_asked:
            channel.send(Cancel(self._session_id))
        self._driver_is(attempt, message.state, message.vertices, None)
        return True

    def receive(self, channel: DriverChannel, message: DriverMessage) -> None:
        """A message of the driver. An old attempt is refused; a message of an old session dropped, its driver kept."""
        attempt = self.attempt
        if isinstance(message, Register):
            self.register(channel, message)
            return
        if attempt is None or message.attempt != attempt.number or channel is not attempt.channel:
            channel.send(Refused(f"attempt {message.attempt} is not the current one"))
            return
        attempt.heard()
        if message.session_id != self._session_id:
            logger.info("job %s: a %s of an old session is dropped", self.graph.job_id, message.type)
            return
        match message:
            case Heartbeat():
                attempt.queries = {**attempt.queries, **message.queries}
            case AcknowledgeCheckpoint():
                self.checkpoints.coordinator.receive_acknowledge(message)
            case DeclineCheckpoint():
                self.checkpoints.coordinator.receive_decline(message)
            case StatusUpdate():
                self._driver_is(attempt, message.state, message.vertices, message.exception)

    def disconnected(self, channel: DriverChannel) -> None:
        """The driver may come back; the heartbeat time-out and its process decide."""
        if self._gateway.channel is channel:
            self._gateway.channel = None

    def _driver_is(
        self, attempt: Attempt, state: DriverState, vertices: tuple[Vertex, ...], exception: ExceptionInfo | None
    ) -> None:
        attempt.state = state
        attempt.vertices = vertices or attempt.vertices
        match state:
            case DriverState.RUNNING:
                self._driver_runs(attempt)
            case DriverState.FINISHED | DriverState.CANCELED:
                attempt.end(AttemptEnd(state))
            case DriverState.FAILED:
                unsaid = self._info("DriverFailed", "The driver failed without saying why.")
                attempt.end(AttemptEnd(state, exception or unsaid))

    def _driver_runs(self, attempt: Attempt) -> None:
        if self.status not in (JobStatus.CREATED, JobStatus.RECONCILING) or attempt.ended.done():
            return
        attempt.running_since_ms = self._services.clock.now_ms()
        how = "was adopted" if self.status is JobStatus.RECONCILING else "runs"
        self._move(JobStatus.RUNNING, f"the driver of attempt {attempt.number} {how}")
        self.checkpoints.coordinator.start_periodic()

    # --- the coordinator's view -------------------------------------------------------------------------------------

    def _plan(self) -> CheckpointPlan:
        attempt = self.attempt
        if self.status is not JobStatus.RUNNING or attempt is None or attempt.ended.done():
            return CheckpointPlan((), ready=False, reason=f"The job is {self.status.value}.")
        if self._gateway.channel is None:
            return CheckpointPlan(attempt.vertices, ready=False, reason="The driver is not connected.")
        return CheckpointPlan(attempt.vertices, ready=True)

    def _checkpoints_failed(self, message: str, error: CheckpointException) -> None:
        if self.attempt is not None:
            self.attempt.end(AttemptEnd(DriverState.FAILED, self._info(type(error).__name__, message)))

    def _halt_checkpoints(self, reason: CheckpointFailureReason) -> None:
        self.checkpoints.coordinator.stop_periodic()
        self.checkpoints.coordinator.abort_pending(reason)

    # --- records ----------------------------------------------------------------------------------------------------

    def _enter_attempt(self, attempt: Attempt) -> None:
        self._gateway.channel = None
        self.attempt = attempt
        self.attempts = [*self.attempts[-ATTEMPTS_SHOWN + 1 :], attempt]

    def _note_end(self, end: AttemptEnd) -> None:
        if self.attempt is not None:
            self.attempt.end(end)

    def _record_exception(self, info: ExceptionInfo) -> None:
        self.exceptions.record(info, self.attempt.number if self.attempt is not None else None)

    def _move(self, target: JobStatus, cause: str) -> None:
        self.state.move(target, cause)

    def _log_move(self, move: Move) -> None:
        source = move.source.value if move.source else "-"
        logger.info(
            "job %s (%s): %s → %s: %s", self.graph.job_id, self.graph.name, source, move.target.value, move.cause
        )

    def _info(self, name: str, message: str, *, recoverable: bool = True) -> ExceptionInfo:
        return ExceptionInfo(
            name=name,
            message=message,
            stacktrace=f"{name}: {message}",
            timestamp=self._services.clock.now_ms(),
            recoverable=recoverable,
        )


async def _result(future: Future[CompletedCheckpoint]) -> CompletedCheckpoint:
    return await asyncio.wrap_future(future)
