"""The driver process of one attempt of one job: `python -m checkpointing.spark.driver <driver.json>`.

    register (INITIALIZING) → start Spark and the queries → RUNNING → heartbeats and checkpoints
                                                          → FINISHED | CANCELED | FAILED
    all queries have ended by themselves → ENDED → the final savepoint → Stop → FINISHED

Exit codes: 0 finished or canceled, 1 failed, 2 the specification cannot be read, 3 no longer wanted (refused, or the
lease or the attempt lost).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from py4j.protocol import Py4JError

from checkpointing.checkpoint_location.started_batches import StartedBatches
from checkpointing.clock import Clock, SystemClock
from checkpointing.ha.attempts import HeldAttempt
from checkpointing.ha.driver_services import DriverServices, driver_services
from checkpointing.ha.errors import AttemptTaken, HighAvailabilityError
from checkpointing.jobs.attempts import LOG_NAME
from checkpointing.jobs.batch_numbers import is_used_up
from checkpointing.jobs.launching.log_limit import LogLimit
from checkpointing.jobs.launching.session_settings import DRIVER_MEMORY, WorkDirectory
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.messages import (
    BatchNumbersExtended,
    Cancel,
    DriverState,
    ExceptionInfo,
    FinishCause,
    JobManagerMessage,
    MalformedMessage,
    NotifyAborted,
    NotifyComplete,
    QueryProgress,
    Refused,
    Register,
    Registered,
    Stop,
    TriggerCheckpoint,
)
from checkpointing.sinks.context import OutputTaken
from checkpointing.spark import failure, job, jvm
from checkpointing.spark.agent import NOT_READY, CheckpointAgent
from checkpointing.spark.fetched_program import fetch_program
from checkpointing.spark.job_manager_link import JobManagerLink, LinkSettings, Vitals
from checkpointing.spark.mistakes import is_mistake
from checkpointing.spark.program import Program, ProgramError, call_program, guard_batch_functions
from checkpointing.spark.reports import JobManagerReports
from checkpointing.spark.restore import RestoreRefused
from checkpointing.spark.running_query import RunningQuery
from checkpointing.spark.status_stores import Executors, failed_task
from checkpointing.spark.task_metrics import EventLog
from checkpointing.spark_internals import UnsupportedPySpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("checkpointing.spark.driver")

EXIT_DONE, EXIT_FAILED, EXIT_BAD_SPECIFICATION, EXIT_NOT_WANTED = 0, 1, 2, 3
_BUSY_TICK_S = 0.02
_IDLE_TICK_S = 0.25
_LAST_WORDS_S = 10.0
_JVM_EXIT_S = 3.0
# Errors that a retry cannot fix.
_PERMANENT = (ProgramError, RestoreRefused, InvalidConfiguration, OutputTaken, UnsupportedPySpark)


class _AttemptOver(Exception):
    """The job has ended in this process. Contains what is still to be reported."""

    def __init__(
        self,
        state: DriverState,
        exception: ExceptionInfo | None = None,
        finish_cause: FinishCause | None = None,
    ) -> None:
        super().__init__(state.value)
        self.state = state
        self.exception = exception
        self.finish_cause = finish_cause


class BatchNumbersUsedUp(Exception):
    """A query is too near to the end of the attempt's batch numbers. The next attempt gets new ones."""


class _AttemptRefused(Exception):
    """The job manager refused this attempt."""


class _Terminated(BaseException):
    """SIGTERM arrived. Raised in the main thread wherever it is, so that nothing can delay the end."""


class Driver:
    """The driver of one attempt. `run` is called once, on the process's main thread.

    `open_session` returns the session of `work`, which a spare driver started before it knew the attempt.
    """

    def __init__(
        self,
        spec: DriverSpec,
        clock: Clock,
        work: WorkDirectory | None = None,
        open_session: Callable[[DriverSpec, WorkDirectory], SparkSession] = job.open_session,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._work = work or WorkDirectory(Path(spec.work_directory))
        self._open_session = open_session
        self._secrets = spec.environment.secrets_in(os.environ)
        self._services: DriverServices | None = None
        self._held: HeldAttempt | None = None
        self._spark: SparkSession | None = None
        self._job: job.SparkJob | None = None
        self._started_batches = StartedBatches(())
        self._agent: CheckpointAgent | None = None
        self._log_limit = LogLimit(Path(spec.work_directory) / LOG_NAME, clock)
        self._events = EventLog(self._work.event_log)
        self._vitals = Vitals()
        self._started_after: dict[str, int] = {}
        self._has_ended = False
        self._numbers_end: int | None = None
        self._numbers_used_up: BatchNumbersUsedUp | None = None
        self._stopping = False
        self._stop_cause: FinishCause | None = None
        self._terminated = False
        self._token = Path(spec.token_file).read_text().strip() if spec.token_file else None
        self._link = self._make_link()
        self._reports = JobManagerReports(spec, self._link, self._events)

    def run(self) -> int:
        """Run the attempt and return the process's exit code. Spark has ended before this returns."""
        try:
            self._claim()
            self._link.start()
            self._run_attempt()
        except _AttemptOver as over:
            self._check_terminated()
            return self._report(over)
        except _AttemptRefused as error:
            log.error("%s", error)
            return EXIT_NOT_WANTED
        except (AttemptTaken, HighAvailabilityError) as error:
            log.error("the attempt cannot be claimed: %s", error)
            return EXIT_NOT_WANTED
        except Exception as error:  # the outermost level of the process: it reports every exception to the job manager
            info = self._explain(error)
            self._check_terminated()
            log.exception("attempt %d failed", self._spec.attempt)
            return self._report(_AttemptOver(DriverState.FAILED, info))
        finally:
            self._shut_down()

    def terminate(self, number: int, frame: FrameType | None) -> NoReturn:
        """Handle SIGTERM. Ignore later signals, because they must not interrupt the end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._terminated = True
        raise _Terminated

    def _check_terminated(self) -> None:
        """End the driver if SIGTERM came.

        A finalizer may have swallowed the exception, and the JVM also got the signal.
        """
        if self._terminated:
            raise _Terminated

    # --- the attempt and the link ---

    def _claim(self) -> None:
        """Claim the attempt, with high availability. No query runs before it is held or after it is lost."""
        if self._spec.high_availability is None:
            return
        self._services = driver_services(self._spec.high_availability, self._clock)
        self._held = self._services.attempts.hold(self._spec.job_id, self._spec.attempt)
        self._held.on_lost(lambda: self._exit_now("the claim on the attempt was lost"))

    def _make_link(self) -> JobManagerLink:
        spec = self._spec
        return JobManagerLink(
            LinkSettings(spec.job_id, spec.attempt, spec.lease_s, self._token),
            self._find_leader,
            self._registration,
            lambda: self._vitals,
            lambda: self._exit_now("the lease has run out"),
            self._clock,
        )

    def _find_leader(self, timeout_s: float) -> str | None:
        if self._services is None:
            return self._spec.job_manager_address
        try:
            leader = self._services.leader_retrieval.wait(timeout_s)
        except HighAvailabilityError as error:
            log.warning("the leader cannot be looked up: %s", error)
            return None
        return leader.address if leader is not None else None

    def _registration(self) -> Register:
        running = self._job
        return Register(
            job_id=self._spec.job_id,
            attempt=self._spec.attempt,
            pid=os.getpid(),
            state=self._state,
            vertices=running.vertices if running is not None and self._agent is not None else (),
            last_batches=self._last_batches() if running is not None else {},
            restored_checkpoint_id=self._spec.restore.checkpoint_id if self._spec.restore else None,
            at_least_once=running is not None and running.is_at_least_once,
            has_advanced=self._has_advanced,
            secret=self._spec.secret,
        )

    @property
    def _state(self) -> DriverState:
        if self._agent is None:
            return DriverState.INITIALIZING
        return DriverState.ENDED if self._has_ended else DriverState.RUNNING

    @property
    def _has_advanced(self) -> bool:
        """Return whether a query has committed a batch in this attempt."""
        return self._last_batches() != self._started_after

    def _last_batches(self) -> dict[str, int]:
        return _commits(self._job) if self._job is not None else {}

    def _exit_now(self, why: str) -> NoReturn:
        """End the process at once, on any thread, because another attempt may start at any moment."""
        log.error("attempt %d ends at once: %s", self._spec.attempt, why)
        jvm.kill()
        os._exit(EXIT_NOT_WANTED)

    # --- the attempt ---

    def _run_attempt(self) -> NoReturn:
        self._await_registration()
        if self._spec.fetches_program:
            fetch_program(self._spec, self._find_leader, self._token, self._clock)
        program, arguments = job.load(self._spec, self._work)
        self._spark = self._open_session(self._spec, self._work)
        guard_batch_functions(
            lambda frame, batch: self._started_batches.note(frame, batch),
            lambda error: self._started_batches.note_error(error),
        )
        self._handle_waiting()
        prepared = self._prepare(self._spark, program, arguments)
        self._handle_waiting()
        self._started_batches = StartedBatches([query.planned.location for query in prepared.queries])
        self._started_after = _commits(prepared)
        self._reports.job = prepared
        self._reports.status(DriverState.INITIALIZING)  # the job manager records the sinks before they receive rows
        for query in prepared.queries:
            query.function_ticks = partial(self._started_batches.cpu_ticks, query.planned.location)
            query.function_error = partial(self._started_batches.error, query.planned.location)
            query.start()
        prepared.program.begin(prepared.queries)
        self._job = prepared
        uploads = job.executor_uploads(self._spec, self._spark, self._clock)
        known = job.checksums_known_to(self._spec, prepared)
        self._agent = CheckpointAgent(prepared.queries, self._reports, self._work.staging, self._clock, uploads, known)
        self._reports.status(DriverState.RUNNING)
        log.info("attempt %d runs: %s", self._spec.attempt, ", ".join(v.name for v in prepared.vertices))
        executors = Executors(self._spark, self._clock)
        while True:
            self._run_cycle(prepared, self._agent, executors)

    def _prepare(self, spark: SparkSession, program: Program, arguments: job.ProgramArguments) -> job.SparkJob:
        try:
            return job.prepare(self._spec, self._work, spark, program, arguments)
        except Exception as error:
            with contextlib.suppress(Py4JError, OSError):  # the JVM is gone
                self._check_context(str(error))
            raise

    def _await_registration(self) -> None:
        """Handle messages until the job manager has accepted the driver. The lease limits the wait."""
        while not self._link.session_id:
            self._handle(self._link.incoming.get())

    def _handle_waiting(self) -> None:
        while not self._link.incoming.empty():
            self._handle(self._link.incoming.get_nowait())

    def _run_cycle(self, running: job.SparkJob, agent: CheckpointAgent, executors: Executors) -> None:
        self._check_terminated()
        self._log_limit.enforce()
        try:
            busy = agent.is_busy or self._stopping
            self._handle(self._link.incoming.get(timeout=_BUSY_TICK_S if busy else _IDLE_TICK_S))
        except queue.Empty:
            pass
        self._handle_waiting()
        self._read_events(running, executors)
        agent.tick()
        self._check_queries(running, agent)

    def _read_events(self, running: job.SparkJob, executors: Executors) -> None:
        self._events.poll()
        latest = {query.name: self._progress(query) for query in running.queries}
        known = {name: progress for name, progress in latest.items() if progress is not None}
        self._vitals = Vitals({**self._vitals.queries, **known}, executors.latest())

    def _progress(self, query: RunningQuery) -> QueryProgress | None:
        if query.files.is_continuous:
            # For such a query Spark reports only the commits of its epochs: no rows, no duration.
            epoch = query.files.last_commit()
            return None if epoch is None else QueryProgress(epoch, None, None)
        latest = self._events.latest(query.spark_id)
        if latest is None:
            return None
        rows = self._events.rows(query.spark_id).by_vertex(query.planned.plan)
        batches = latest.batch_id - self._started_after.get(query.name, -1)
        return QueryProgress(latest.batch_id, latest.input_rows, latest.duration_ms, latest.watermark, rows, batches)

    def _check_queries(self, running: job.SparkJob, agent: CheckpointAgent) -> None:
        """Check the queries for their end. Fail the job if a query died.

        If all queries ended on request, the attempt is over. If all ended by themselves, and the program after them,
        the driver reports ENDED. The job manager then takes the final savepoint and sends `Stop`.
        """
        # Read before the queries are examined.
        program_error, program_has_ended = running.program.error, running.program.has_ended
        ended = [query for query in running.queries if not query.is_active]
        for query in ended:
            info = query.failure(self._clock.now_ms())
            if info is not None:
                self._check_context(info.message)
                raise _AttemptOver(DriverState.FAILED, self._with_task(query, info))
        if program_error is not None:
            raise program_error
        self._end_before_numbers_run_out(running, agent)
        if self._stopping:
            if all(query.has_ended() for query in running.queries):
                if self._numbers_used_up is not None:
                    raise self._numbers_used_up
                raise _AttemptOver(DriverState.FINISHED, finish_cause=self._stop_cause)
        elif ended and not agent.has_ended_queries and not self._has_ended:
            self._check_context()
            for query in ended:
                running.program.note_ended(query.name)
            if len(ended) == len(running.queries) and program_has_ended:
                self._has_ended = True
                log.info("attempt %d: all queries have ended by themselves", self._spec.attempt)
                self._reports.status(DriverState.ENDED, has_advanced=self._has_advanced)

    def _end_before_numbers_run_out(self, running: job.SparkJob, agent: CheckpointAgent) -> None:
        """End the queries after their batch near the end of the range: later numbers belong to other attempts."""
        if self._numbers_end is None or self._stopping or self._has_ended or agent.has_ended_queries:
            return
        query, number = max(
            ((name, progress.batch_id) for name, progress in self._vitals.queries.items()),
            key=lambda each: each[1],
            default=("", -1),
        )
        if is_used_up(self._numbers_end, number):
            self._numbers_used_up = BatchNumbersUsedUp(
                f"Query {query!r} has reached batch {number}, and this attempt may use the numbers below "
                f"{self._numbers_end} only. The next attempt continues with new batch numbers."
            )
            self._end_queries(running)

    def _with_task(self, query: RunningQuery, info: ExceptionInfo) -> ExceptionInfo:
        """Return the failure with the name of the failed task, if that can be found out.

        Errors must not hide the failure.
        """
        if self._spark is None or info.task_name is not None:
            return info
        try:
            task = failed_task(self._spark, query.run_id, info.stacktrace, self._clock)
        except (Py4JError, OSError) as error:
            log.warning("the failed task cannot be looked up: %s", error)
            return info
        return replace(info, task_name=f"{query.name}: {task}") if task is not None else info

    def _check_context(self, last_words: str = "") -> None:
        """Raise ContextStopped if the SparkContext was stopped. Then the queries have neither finished nor failed."""
        if self._spark is not None and jvm.is_stopped(self._spark):
            raise jvm.ContextStopped(
                "The SparkContext was stopped while the queries ran. A program must not call stop(); the job manager "
                "stops it. "
                f"If the cluster removed the application, the driver's log has the cause. {last_words}".strip()
            )

    def _context_stopped(self, error: Exception) -> jvm.ContextStopped | None:
        """Return ContextStopped if the SparkContext was stopped, because then any call of Spark can fail.

        Else return None.
        """
        if isinstance(error, jvm.ContextStopped):
            return None
        try:
            self._check_context(str(error))
        except jvm.ContextStopped as stopped:
            return stopped
        except (Py4JError, OSError):  # the JVM does not answer
            return None
        return None

    # --- messages of the job manager ---

    def _handle(self, message: JobManagerMessage) -> None:
        match message:
            case Refused():
                raise _AttemptRefused(f"the job manager refused attempt {self._spec.attempt}: {message.reason}")
            case Stop():
                self._stop(message)
            case BatchNumbersExtended():
                self._numbers_end = message.end
            case Cancel():
                for query in self._job.queries if self._job is not None else ():
                    query.stop()
                raise _AttemptOver(DriverState.CANCELED)
            case TriggerCheckpoint() if self._agent is None or self._stopping:
                cause = "The job is stopping." if self._stopping else "The job's queries are not running yet."
                self._reports.decline(message.checkpoint_id, NOT_READY, cause)
            case Registered() if message.batch_numbers_end is not None:
                self._numbers_end = message.batch_numbers_end
                if self._agent is not None:
                    _instruct(self._agent, message)
            case _ if self._agent is not None:
                _instruct(self._agent, message)

    def _stop(self, message: Stop) -> None:
        self._stop_cause = message.cause
        if self._job is None or self._agent is None:
            raise _AttemptOver(DriverState.FINISHED, finish_cause=message.cause)
        self._numbers_used_up = None
        if not self._stopping and not self._agent.has_ended_queries:
            self._end_queries(self._job)
        self._stopping = True

    def _end_queries(self, running: job.SparkJob) -> None:
        for query in running.queries:
            if query.is_active:
                query.end_after_batch()
        self._stopping = True

    # --- the end ---

    def _explain(self, error: Exception) -> ExceptionInfo:
        now = self._clock.now_ms()
        # The connection breaks shortly before the JVM exits. A SIGTERM that the JVM got first arrives here in that
        # time, too.
        jvm_exit = jvm.exit_code(_JVM_EXIT_S if isinstance(error, Py4JError | OSError) else 0)
        if jvm_exit is not None:
            memory = self._spec.configuration.get("spark.driver.memory", DRIVER_MEMORY)
            return failure.of_exception(jvm.lost(jvm_exit, memory), now)
        error = self._context_stopped(error) or error
        info = failure.of_exception(error, now, recoverable=not isinstance(error, _PERMANENT))
        return replace(
            info,
            is_mistake=self._agent is None and is_mistake(error, call_program, self._spark),
            keeps_state=isinstance(error, RestoreRefused),
        )

    def _report(self, over: _AttemptOver) -> int:
        """End Spark, then report the end: what is reported as ended must not write any more."""
        log.info("attempt %d: %s", self._spec.attempt, over.state.value)
        self._end_spark()
        exception = over.exception and failure.without_secrets(over.exception, self._secrets)
        self._reports.status(over.state, exception, over.finish_cause, queries=self._vitals.queries)
        self._link.close(_LAST_WORDS_S)
        return EXIT_FAILED if over.state is DriverState.FAILED else EXIT_DONE

    def _end_spark(self) -> None:
        if self._agent is not None:
            self._agent.close()
        jvm.kill()

    def _shut_down(self) -> None:
        """End Spark and close the link, also after SIGTERM. Release the claim last, after everything else has ended."""
        self._end_spark()
        self._link.close(0)
        if self._held is not None:
            try:
                self._held.release()
            except HighAvailabilityError as error:
                log.warning("the claim on the attempt ends with its session: %s", error)
        if self._services is not None:
            self._services.close()


def _commits(running: job.SparkJob) -> dict[str, int]:
    """Return the newest commit of each query that has one."""
    commits = {query.name: query.files.last_commit() for query in running.queries}
    return {name: commit for name, commit in commits.items() if commit is not None}


def _instruct(agent: CheckpointAgent, message: JobManagerMessage) -> None:
    match message:
        case TriggerCheckpoint():
            agent.trigger(message)
        case NotifyComplete():
            agent.completed(message.checkpoint_id)
        case NotifyAborted():
            agent.aborted(message.checkpoint_id)
        case Registered():
            agent.only_pending(message.pending_checkpoints)


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)


def main(arguments: list[str]) -> int:
    log_to_stderr()
    try:
        [path] = arguments
        spec = DriverSpec.from_json(json.loads(Path(path).read_text()))
        driver = Driver(spec, SystemClock())
    except (OSError, ValueError, MalformedMessage) as error:
        log.error("the driver's only argument is the path of its specification: %s", error)
        return EXIT_BAD_SPECIFICATION
    return run_until_ended(driver)


def run_until_ended(driver: Driver) -> int:
    signal.signal(signal.SIGTERM, driver.terminate)
    try:
        return driver.run()
    except _Terminated:
        log.info("ended by SIGTERM")
        return 128 + signal.SIGTERM


def exit_process(code: int) -> NoReturn:
    """End the process with os._exit: threads of py4j and of a user's program must not keep it alive."""
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
