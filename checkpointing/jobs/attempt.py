"""One attempt of a job: one driver process, from its launch to its end."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from checkpointing.clock import Clock
from checkpointing.jobs.attempts import AttemptRecord
from checkpointing.jobs.batch_numbers import is_used_up
from checkpointing.jobs.driver_link import DriverChannel
from checkpointing.jobs.launcher import DriverProcess, Loss, MemoryLimited
from checkpointing.jobs.launching.demand import gib
from checkpointing.jobs.loop import LoopIoExecutor
from checkpointing.jobs.settings import JobManagerSettings
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import DriverState, ExceptionInfo, Executor, FinishCause, QueryProgress, Vertex
from checkpointing.storage.errors import StorageSilent

# A driver may report its end and exit at once, so its last message may still be on its way.
_LAST_MESSAGE_GRACE_S = 5.0
# The end of the driver's log is read only to show it to people.
_LOG_SILENCE_S = 5.0


@dataclass(frozen=True)
class AttemptEnd:
    """How the attempt ended: FINISHED, CANCELED or FAILED.

    `exception` belongs to FAILED, `finish_cause` to FINISHED.
    """

    state: DriverState
    exception: ExceptionInfo | None = None
    finish_cause: FinishCause | None = None


class Attempt:
    """One attempt with its process, connection and progress.

    `secret` authenticates the driver; only the job manager that starts the attempt knows it. `final_savepoint` is the
    savepoint of a stop-with-savepoint, or the one taken when all queries ended by themselves. `ends_for_rescale`: the
    attempt ends so that the next one can start with another parallelism. `ended_by_itself` and `has_advanced` come from
    the driver's report that it ENDED. After such a report, `has_nothing_to_save` says that the state is still the one
    that the attempt started from. `is_released` says that a checkpoint stays instead of a final savepoint.
    """

    def __init__(
        self,
        record: AttemptRecord,
        process: DriverProcess | None,
        clock: Clock,
        io: LoopIoExecutor,
        secret: str = "",
    ) -> None:
        self.record = record
        self.secret = secret
        self.process = process
        self.state = DriverState.INITIALIZING
        self.vertices: tuple[Vertex, ...] = ()
        self.queries: dict[str, QueryProgress] = {}
        self.last_batches: dict[str, int] = {}
        self.at_least_once = False
        self.executors: tuple[Executor, ...] = ()
        self.channel: DriverChannel | None = None
        self.running_since_ms: int | None = None
        self.ended_ms: int | None = None
        self.final_savepoint: Future[CompletedCheckpoint] | None = None
        self.ends_for_rescale = False
        self.has_last_numbers = False
        self.ended_by_itself = False
        self.has_advanced = True
        self.has_nothing_to_save = False
        self.is_released = False
        self.ended: asyncio.Future[AttemptEnd] = asyncio.get_running_loop().create_future()
        self.registration = asyncio.Event()
        self._clock = clock
        self._io = io
        self._last_contact_s = clock.monotonic()
        self.last_contact_ms = clock.now_ms()

    @property
    def number(self) -> int:
        return self.record.attempt

    @property
    def greatest_batch(self) -> int:
        """Return the greatest batch number that the attempt's driver reported, -1 before the first."""
        reported = (progress.batch_id for progress in self.queries.values())
        return max((*reported, *self.last_batches.values()), default=-1)

    @property
    def has_used_its_numbers(self) -> bool:
        return is_used_up(self.record.batch_numbers.end, self.greatest_batch)

    @property
    def stopped_with(self) -> CompletedCheckpoint | None:
        """Return the final savepoint once the savepoint is complete."""
        savepoint = self.final_savepoint
        if savepoint is None or not savepoint.done() or savepoint.exception() is not None:
            return None
        return savepoint.result()

    @property
    def stop_cause(self) -> FinishCause | None:
        """Return why the driver must end, or None while it may run on."""
        if self.stopped_with is not None:
            return FinishCause.AFTER_SAVEPOINT
        if self.ends_for_rescale:
            return FinishCause.FOR_RESCALE
        return FinishCause.BY_ITSELF if self.has_nothing_to_save or self.is_released else None

    def record_contact(self) -> None:
        self._last_contact_s = self._clock.monotonic()
        self.last_contact_ms = self._clock.now_ms()

    def registered(self, channel: DriverChannel) -> None:
        """Store the driver's new connection and close the older one."""
        if self.channel is not None and self.channel is not channel:
            self.channel.close()
        self.channel = channel
        self.registration.set()
        self.record_contact()

    def end(self, end: AttemptEnd) -> None:
        """End the attempt. Only the first end counts, because later ones are its consequences."""
        if not self.ended.done():
            self.ended_ms = self._clock.now_ms()
            self.ended.set_result(end)

    async def wait_until_over(self, limit_s: float) -> None:
        """Return when the attempt or its process has ended, or after `limit_s`.

        Use it for a driver that was asked to end and that `watch` does not watch. The process may end without a report.
        """
        waited: list[asyncio.Future[Any]] = [self.ended]
        if self.process is not None:
            waited.append(asyncio.ensure_future(self.process.wait()))
        try:
            await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for exited in waited[1:]:
                exited.cancel()

    async def watch(self, settings: JobManagerSettings) -> None:
        """End the attempt if its process exits or its driver stays silent too long. Return when it has ended."""
        watched: DriverProcess | None = None
        async with asyncio.TaskGroup() as group:
            while not self.ended.done():
                if self.process is not watched and self.process is not None:
                    # An adopted process may have replaced the watched one.
                    watched = self.process
                    group.create_task(self._watch_process(watched))
                registered = self.registration.is_set()
                if not registered and self.process is not None and not self.process.has_started:
                    self._last_contact_s = self._clock.monotonic()
                limit = settings.heartbeat_timeout_s if registered else settings.registration_timeout_s
                silence = self._clock.monotonic() - self._last_contact_s
                if silence > limit:
                    await self._report_lost("HeartbeatTimeout", self._silence_text(silence))
                await asyncio.wait({self.ended}, timeout=settings.heartbeat_interval_s)

    async def _watch_process(self, process: DriverProcess) -> None:
        code = await process.wait()
        if self.channel is not None:
            last_words: set[asyncio.Future[Any]] = {self.channel.gone, self.ended}
            await asyncio.wait(last_words, timeout=_LAST_MESSAGE_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        if self.stop_cause is not None and (code == 0 or self.ended_by_itself):
            # Either the driver followed the order and its report was lost with the connection, or nothing was left to
            # do.
            self.end(AttemptEnd(DriverState.FINISHED, finish_cause=self.stop_cause))
        if self.ended.done():
            return
        loss = process.loss or await self._exceeded_limit(process) or _unexplained_loss(process, code)
        await self._report_lost(loss.name, loss.message)

    async def _exceeded_limit(self, process: DriverProcess) -> Loss | None:
        if not isinstance(process, MemoryLimited):
            return None
        limit = None
        with contextlib.suppress(StorageSilent, OSError):
            limit = await self._io.read("the driver's memory", process.exceeded_memory_limit, silence_s=_LOG_SILENCE_S)
        return None if limit is None else Loss("DriverOutOfMemory", _out_of_memory(self.number, limit))

    def _silence_text(self, silence_s: float) -> str:
        if self.registration.is_set():
            return f"The driver of attempt {self.number} sent no heartbeat for {silence_s:.0f} s."
        return f"The driver of attempt {self.number} did not register within {silence_s:.0f} s."

    async def last_log_lines(self) -> str:
        """Return the last lines of the driver's log, or "" if there are none or they cannot be read now."""
        if self.process is None:
            return ""
        with contextlib.suppress(StorageSilent):
            return await self._io.read("the driver's log", self.process.last_log_lines, silence_s=_LOG_SILENCE_S)
        return ""

    async def _report_lost(self, name: str, message: str) -> None:
        log = await self.last_log_lines()
        stacktrace = f"{name}: {message}" + (f"\nLast lines of its log:\n{log}" if log else "")
        info = ExceptionInfo(name=name, message=message, stacktrace=stacktrace, timestamp=self._clock.now_ms())
        self.end(AttemptEnd(DriverState.FAILED, info))


def _unexplained_loss(process: DriverProcess, code: int | None) -> Loss:
    return Loss("DriverLost", f"The driver's process {process.pid} ended{_exit_text(code)} without saying why.")


def _out_of_memory(number: int, limit: int) -> str:
    return (
        f"The driver of attempt {number} and its workers took more than their memory limit of {gib(limit)}, and the "
        "kernel ended them. Raise waymark.driver.memory-limit, or let the program take less."
    )


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    return f" through signal {-code}" if code < 0 else f" with exit code {code}"
