"""The life of one job under this job manager, from its start to its terminal status.

All methods run on the job manager's main thread (the event loop). `run` covers all of it. The conversation with the
driver reports to it, and requests interrupt it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from checkpointing.coordinator.ports import CheckpointPlan
from checkpointing.coordinator.reasons import CheckpointException, CheckpointFailureReason
from checkpointing.ha.errors import ConnectionUnavailable, LeadershipLost
from checkpointing.jobs.attempt import Attempt, AttemptEnd
from checkpointing.jobs.attempt_starter import AttemptFailed, AttemptStarter, Restore
from checkpointing.jobs.batch_numbers import NUMBERS_USED_UP
from checkpointing.jobs.driver_conversation import DriverConversation
from checkpointing.jobs.driver_link import DriverGateway
from checkpointing.jobs.final_savepoint import FinalSavepoint
from checkpointing.jobs.interrupts import Interrupted, Interrupts, Request
from checkpointing.jobs.job_checkpoints import JobCheckpoints
from checkpointing.jobs.job_record import JobRecord
from checkpointing.jobs.job_recovery import JobRecovery
from checkpointing.jobs.job_requests import JobRequests
from checkpointing.jobs.local_recovery import LocalRestore
from checkpointing.jobs.long_action import LongActions
from checkpointing.jobs.rescale import JobRescale
from checkpointing.jobs.restart import restart_strategy
from checkpointing.jobs.restore import claims_savepoint
from checkpointing.jobs.services import JobServices
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import Cancel, DriverState, ExceptionInfo, Vertex
from checkpointing.model.status import JobStatus

logger = logging.getLogger(__name__)

# How many seconds a driver gets after an order to end, or after it reported a failure, before it is killed.
END_GRACE_S = 10.0


class JobMaster:
    """Runs one job. `record` holds its data, `requests` accepts requests, and `driver` handles the driver's messages.

    `left_nothing`: the job's end is stored durably, and its checkpoints are cleaned up.
    """

    def __init__(
        self,
        graph: JobGraph,
        session_id: str,
        services: JobServices,
        record_result: Callable[[JobMaster], Awaitable[bool]],
        *,
        recovered: bool,
    ) -> None:
        """Raise InvalidConfiguration if the graph's settings are not allowed.

        `record_result` stores the job's end durably. It is called in the globally terminal status, before anything is
        removed. If it returns False, nothing may be removed.
        """
        self.record = JobRecord(graph, services.clock, recovered=recovered)
        self.strategy = restart_strategy(graph.configuration, services.random)
        self._services = services
        self._record_result = record_result
        self._recovered = recovered
        self._leads = partial(services.leads, session_id)
        self._interrupts = Interrupts(self._leads)
        self._gateway = DriverGateway(session_id, self._leads)
        self.checkpoints = JobCheckpoints(
            graph,
            self.record.config,
            services,
            self._gateway,
            self._plan,
            self._checkpoints_failed,
            self._report_left_behind,
        )
        coordinator = self.checkpoints.coordinator
        self._starter = AttemptStarter(
            graph,
            session_id,
            services,
            self.checkpoints.store,
            self.record.record_exception,
            recovered=recovered,
        )
        actions = LongActions()
        self._final_savepoint = FinalSavepoint(
            self.record, services, coordinator, self._gateway, self._starter, self._interrupts, actions
        )
        self._recovery = JobRecovery(
            self.record, services, self.checkpoints, self._starter, self._interrupts, self._final_savepoint
        )
        self.driver = DriverConversation(
            self.record,
            services,
            self._gateway,
            self._starter,
            self.checkpoints,
            self._interrupts,
            self._final_savepoint,
        )
        self.requests = JobRequests(
            self.record,
            coordinator,
            self._gateway,
            self._interrupts,
            actions,
            self.wait_ended,
            services.settings.cancel_timeout_s,
        )
        self.rescale = JobRescale(self.record, services, coordinator, self._gateway, self._starter, actions)
        self.left_nothing = False
        self._may_hold_orphans = False
        self._keep_state = False
        self._keep_files = False
        self._last_uncounted = 0
        self._queued_s = 0.0
        self._ended: asyncio.Future[JobStatus] = asyncio.get_running_loop().create_future()

    @property
    def graph(self) -> JobGraph:
        return self.record.graph

    @property
    def session_id(self) -> str:
        """Return the session ID of the term in which the job runs here."""
        return self._gateway.session_id

    @property
    def keeps_state(self) -> bool:
        """Return whether the job's stored state must stay, because it could not be used."""
        return self._keep_state

    @property
    def keeps_files(self) -> bool:
        """Return whether the files of the job's attempts must stay, because they are its only state."""
        return self._keep_files

    @property
    def status(self) -> JobStatus:
        return self.record.status

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        return self.record.vertices

    async def run(self) -> JobStatus:
        """Run the job to its terminal status and return that status. Raise nothing but CancelledError."""
        try:
            status, cause = await self._live()
        except Interrupted as interrupted:
            status, cause = await self._end_interrupted(interrupted.request)
        except (LeadershipLost, ConnectionUnavailable):
            status, cause = await self._end_interrupted(Request.SUSPEND)
        except Exception as error:
            # A bug must not leave a job that nothing controls. The job fails, and nothing of it is removed.
            logger.exception("job %s: its master failed", self.graph.job_id)
            status, cause = await (self._broken(error) if self._leads() else self._end_interrupted(Request.SUSPEND))
        await self._conclude(status, cause)
        return status

    async def wait_ended(self) -> JobStatus:
        return await asyncio.shield(self._ended)

    # --- from attempt to attempt ------------------------------------------------------------------------------------

    async def _live(self) -> tuple[JobStatus, str]:
        try:
            attempt = await self._recovery.run(END_GRACE_S)
        except AttemptFailed as failed:
            return self._failed_for_good(failed)
        # Files that an adopted driver is just writing look like orphans until its first checkpoint here is complete.
        self._may_hold_orphans = attempt is None
        if attempt is not None:
            self.checkpoints.adopted(attempt.record)
            self.checkpoints.sweep_once_completed(self.session_id)
            self.driver.checkpoints_are_read()
            self.rescale.begin_if_due()
        while True:
            state_is_away = False
            try:
                if attempt is None:
                    attempt = await self._start_attempt()
                end = await self._watched(attempt)
            except (AttemptFailed, OSError) as error:
                failure = error if isinstance(error, AttemptFailed) else self._start_failure(error)
                if failure.keep_state and not failure.info.recoverable:
                    return self._failed_for_good(failure)
                state_is_away = failure.keep_state
                end = AttemptEnd(DriverState.FAILED, failure.info)
                self.record.note_end(end)
            if end.state is DriverState.FINISHED:
                await self._interrupts.wait_for(self.checkpoints.savepoints_written())
                if self.status is not JobStatus.RUNNING:  # the driver ended before this job manager saw the job RUNNING
                    self.record.move(JobStatus.RUNNING, "the driver ran")
                if attempt is None or not self.rescale.takes_over(attempt, end):
                    return self._finished()
                await self._restart_rescaled(attempt)
                attempt = None
                continue
            unasked = "The driver ended as CANCELED, though nobody had requested it."
            suppressed = await self._fail(end.exception or self.record.info("DriverCanceled", unasked))
            if suppressed is not None:
                self._keep_state = state_is_away or (end.exception is not None and end.exception.keeps_state)
                return JobStatus.FAILED, suppressed
            attempt = None

    def _start_failure(self, error: OSError) -> AttemptFailed:
        """Return a failure that is retried: the job's directory or another storage does not answer."""
        message = f"The attempt could not be started: {error}"
        return AttemptFailed(self.record.info(type(error).__name__, message), keep_state=True)

    async def _start_attempt(self) -> Attempt:
        self.record.move(JobStatus.CREATED, "ready to start an attempt")
        await self._interrupts.wait_for(self._starter.wait_until_free())
        await self._interrupts.wait_for(self._starter.prepare_python(self.record.prepare_python))
        await self._interrupts.wait_for(self.checkpoints.settled())
        if self._may_hold_orphans:
            await self._interrupts.wait_for(self.checkpoints.sweep(self._gateway.session_id))
            self._may_hold_orphans = False
        await self._wait_for_turn()
        restore = await self._interrupts.wait_for(self._starter.choose_restore())
        if isinstance(restore, Restore):
            await self._recover_from(restore)
        # Nothing may interrupt the following steps up to the process's start: no driver may start unknown to the job
        # manager.
        attempt = await self._starter.prepare(restore, self.record.greatest_batch)
        self._gateway.channel = None
        self.record.enter_attempt(attempt)
        self.checkpoints.sweep_once_completed(self.session_id)
        if isinstance(restore, LocalRestore):
            self.checkpoints.adopted(attempt.record)
        await self._starter.launch(attempt, restore)
        return attempt

    async def _wait_for_turn(self) -> None:
        """Wait until the driver may start. The restart strategy does not count the waiting time."""
        since_s = self._services.clock.monotonic()
        await self._interrupts.wait_for(self._services.launch_queue.wait_for_turn(self._starter.graph))
        self._queued_s += self._services.clock.monotonic() - since_s

    async def _recover_from(self, restore: Restore) -> None:
        is_claimed = restore.from_savepoint_path and claims_savepoint(self.graph)
        if is_claimed:
            try:
                await self._interrupts.wait_for(self.checkpoints.claim(restore.checkpoint))
            except OSError as error:
                info = self.record.info(type(error).__name__, f"The savepoint cannot be claimed: {error}")
                raise AttemptFailed(info) from error
        is_savepoint = restore.from_savepoint_path and not is_claimed
        self.checkpoints.coordinator.restored(restore.checkpoint, is_savepoint=is_savepoint)

    async def _watched(self, attempt: Attempt) -> AttemptEnd:
        watch = asyncio.create_task(attempt.watch(self._services.settings))
        try:
            return await self._interrupts.wait_for(attempt.ended)
        finally:
            watch.cancel()

    async def _fail(self, info: ExceptionInfo) -> str | None:
        """Move from FAILING to RESTARTING and wait for the delay. Return why there is no restart, or None."""
        self.record.record_exception(info)
        self.record.move(JobStatus.FAILING, info.message)
        self._halt_checkpoints(CheckpointFailureReason.TASK_FAILURE)
        failed_s = self._services.clock.monotonic() - self._queued_s
        if self.record.attempt is not None:
            await self._interrupts.wait_for(self._starter.end(self.record.attempt, END_GRACE_S))
        self._services.launch_queue.started(self.graph.job_id)
        excuse = await self._reason_not_to_count(info)
        if excuse is not None:
            self.record.move(JobStatus.RESTARTING, excuse)
            return None
        if info.is_mistake and not self.record.has_run:
            return f"The program failed before the job was RUNNING, and a restart would not correct it: {info.message}"
        is_new_attempt = self.strategy.notify_failure(failed_s)
        if not info.recoverable:
            return f"The failure is not recoverable: {info.message}"
        if not self.strategy.can_restart(failed_s):
            return f"Recovery is suppressed by the restart strategy ({self.strategy.describe()}): {info.message}"
        self.record.num_restarts += is_new_attempt
        delay = self.strategy.backoff_s()
        self.record.move(JobStatus.RESTARTING, f"next attempt in {delay:g} s")
        await self._interrupts.wait_for(asyncio.sleep(delay))
        return None

    async def _reason_not_to_count(self, info: ExceptionInfo) -> str | None:
        """Return why the restart strategy must not count this failure, or None if it must."""
        attempt = self.record.attempt
        if attempt is None or attempt.number <= self._last_uncounted:
            return None
        self._last_uncounted = attempt.number
        if await self.rescale.undo(attempt, info):
            return "the change of the parallelism was refused and is undone"
        if await self._starter.is_local_state_useless(attempt.record):
            return "no batch was committed after a local recovery; a checkpoint is next"
        if info.name == NUMBERS_USED_UP and attempt.has_used_its_numbers:
            return "the batch numbers of the attempt are used up; the next attempt gets new ones"
        return None

    async def _restart_rescaled(self, attempt: Attempt) -> None:
        self.record.num_rescales += 1
        self.record.move(JobStatus.RESTARTING, "the parallelism changes")
        self._halt_checkpoints(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        await self._interrupts.wait_for(self._starter.end(attempt, END_GRACE_S, ends_itself=True))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _finished(self) -> tuple[JobStatus, str]:
        how = "by itself" if self.record.attempt is None else _finish_text(self.record.attempt)
        return JobStatus.FINISHED, f"the driver finished {how}"

    def _failed_for_good(self, failed: AttemptFailed) -> tuple[JobStatus, str]:
        self._keep_state = self._keep_state or failed.keep_state
        self._keep_files = failed.keep_files
        if failed.info not in [entry.info for entry in self.record.exceptions.entries]:
            self.record.record_exception(failed.info)
        self._move_to_failing(failed.info.message)
        return JobStatus.FAILED, failed.info.message

    async def _broken(self, error: Exception) -> tuple[JobStatus, str]:
        self._keep_state = True
        message = f"The job's master failed: {error}"
        self.record.record_exception(self.record.info(type(error).__name__, message, recoverable=False))
        self._halt_checkpoints(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        await self._end_driver()
        self._move_to_failing(str(error))
        return JobStatus.FAILED, message

    def _move_to_failing(self, cause: str) -> None:
        """Move to FAILING where the status table requires that before FAILED.

        Other statuses may change to FAILED at once.
        """
        if self.status in (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RECONCILING):
            self.record.move(JobStatus.FAILING, cause)

    async def _end_interrupted(self, request: Request) -> tuple[JobStatus, str]:
        try:
            if request is Request.CANCEL:
                await self._end_cancelled()
                return JobStatus.CANCELED, "canceled on request"
        except Interrupted as interrupted:
            request = interrupted.request
        self._halt_checkpoints(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        if request is Request.SHUTDOWN and self._leads():
            # Limit the wait: during a shutdown it is not always possible to find out whether the driver released its
            # claim.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end_driver(), self._services.settings.cancel_timeout_s + 3 * END_GRACE_S)
            return JobStatus.SUSPENDED, "the job manager shuts down; the driver was ended"
        return JobStatus.SUSPENDED, "this job manager is no longer the leader; the driver keeps running"

    async def _end_cancelled(self) -> None:
        self.record.move(JobStatus.CANCELLING, "canceled on request")
        self._halt_checkpoints(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND)
        await self._interrupts.wait_for(self._end_driver(), cancelling=True)

    async def _end_driver(self) -> None:
        """Ask the driver to end its queries. End its process after the timeout.

        A driver without a running query is ended at once: while it starts Spark it handles no messages, and it has no
        progress to lose.
        """
        attempt = self.record.attempt
        if attempt is None or attempt.record.ended:
            return
        if attempt.channel is not None and attempt.state in (DriverState.RUNNING, DriverState.ENDED):
            self._gateway.send(Cancel(self._gateway.session_id))
            await attempt.wait_until_over(self._services.settings.cancel_timeout_s)
        ends_itself = attempt.ended.done()
        attempt.end(AttemptEnd(DriverState.CANCELED))
        await self._starter.end(attempt, END_GRACE_S, ends_itself=ends_itself)

    async def _conclude(self, status: JobStatus, cause: str) -> None:
        attempt = self.record.attempt
        if attempt is not None:
            if attempt.channel is not None:
                attempt.channel.close()
            attempt.end(AttemptEnd(DriverState.CANCELED))
        self._gateway.channel = None
        if status is JobStatus.FAILED and self.record.exceptions.entries:
            self.record.failure = self.record.exceptions.entries[0].info
        self.record.move(status, cause)
        is_over = status.globally_terminal and await self._record_result(self)
        if status is JobStatus.FINISHED and attempt is not None:
            with contextlib.suppress(Interrupted):
                await self._interrupts.wait_for(
                    self._starter.end(attempt, END_GRACE_S, ends_itself=True), cancelling=True
                )
        self._services.launch_queue.left(self.graph.job_id)
        if not self._keep_state:
            # Checkpoints that were not read yet stay until the retried clean-up can read them.
            is_over = is_over and self.checkpoints.is_recovered
            end = status if is_over else JobStatus.SUSPENDED
            error = await self.checkpoints.shutdown(end, is_saved=self.record.is_saved)
            is_over = is_over and error is None
        elif is_over:
            await self.checkpoints.give_up_claim()
        self.left_nothing = is_over
        if not self._ended.done():
            self._ended.set_result(status)

    # --- the coordinator's view -------------------------------------------------------------------------------------

    def _plan(self) -> CheckpointPlan:
        attempt = self.record.attempt
        if self.status is not JobStatus.RUNNING or attempt is None or attempt.ended.done():
            return CheckpointPlan((), ready=False, reason=f"The job is {self.status.value}.")
        if self._gateway.channel is None:
            return CheckpointPlan(attempt.vertices, ready=False, reason="The driver is not connected.")
        return CheckpointPlan(attempt.vertices, ready=True, batch_numbers=attempt.record.batch_numbers)

    def _checkpoints_failed(self, message: str, error: CheckpointException) -> None:
        attempt = self.record.attempt
        if attempt is not None and attempt.ended_by_itself:
            return  # a restart would not save the work of this attempt
        self.record.note_end(AttemptEnd(DriverState.FAILED, self.record.info(type(error).__name__, message)))

    def _report_left_behind(self, what: str, error: Exception) -> None:
        self.record.record_exception(
            self.record.info("CheckpointNotRemoved", f"{what} could not be removed and stays: {error}")
        )
        logger.error("job %s: %s could not be removed and stays: %s", self.graph.job_id, what, error)

    def _halt_checkpoints(self, reason: CheckpointFailureReason) -> None:
        self._final_savepoint.give_up()
        self.checkpoints.coordinator.stop_periodic()
        self.checkpoints.coordinator.abort_pending(reason)


def _finish_text(attempt: Attempt) -> str:
    savepoint = attempt.stopped_with
    if not attempt.ended_by_itself:
        return "by itself" if savepoint is None else f"after savepoint {savepoint.checkpoint_id}"
    if savepoint is not None:
        return f"by itself, with final savepoint {savepoint.checkpoint_id}"
    if attempt.has_nothing_to_save:
        return "by itself, without a new batch"
    return "by itself, without a final savepoint: its checkpoints stay"
