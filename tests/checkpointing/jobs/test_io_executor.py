"""Blocking work runs in a few threads per owner. Waits are bounded, and owners do not share threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from checkpointing.daemon_threads import progressed
from checkpointing.jobs.loop import IoThreads, LoopIoExecutor
from checkpointing.storage.errors import StorageSilent, StorageUnreachable
from tests.checkpointing.jobs.running_job_manager import eventually

LONG_S = 60.0
REPOSITORY = Path(__file__).parents[3]


class Storage:
    """A storage whose calls hang until `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.calls = 0

    def call(self) -> str:
        self.calls += 1
        assert self.answers.wait(LONG_S)
        return "answer"


@pytest_asyncio.fixture
async def storage() -> AsyncIterator[Storage]:
    storage = Storage()
    yield storage
    storage.answers.set()


def executor(silence_s: float = 0.2, threads: int = 2) -> LoopIoExecutor:
    return LoopIoExecutor(asyncio.get_running_loop(), "the storage of job 1", silence_s=silence_s, threads=threads)


class Outcome:
    def __init__(self, io: LoopIoExecutor, work: Callable[[], object]) -> None:
        self.result: object = None
        self.error: Exception | None = None
        io.submit(work, self._done, self._failed)

    def _done(self, result: object) -> None:
        self.result = result

    def _failed(self, error: Exception) -> None:
        self.error = error


async def test_results_and_errors_are_returned_on_the_loop() -> None:
    io = executor()
    loop_thread, seen = threading.get_ident(), []
    io.submit(threading.get_ident, lambda ident: seen.append((ident, threading.get_ident())), seen.append)
    await eventually(lambda: seen)
    [(work_thread, callback_thread)] = seen
    assert work_thread != loop_thread == callback_thread
    failed = Outcome(io, lambda: int("x"))
    await eventually(lambda: isinstance(failed.error, ValueError))
    assert await io.run(lambda: 7) == await io.read("it", lambda: 7) == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await io.run(lambda: int("x"))


async def test_a_read_times_out_and_names_its_target(storage: Storage) -> None:
    with pytest.raises(StorageSilent, match=r"^/mnt/chk-1 has not answered for 0\.2 s$") as silent:
        await executor().read("/mnt/chk-1", storage.call)
    assert isinstance(silent.value, StorageUnreachable), "silent storage is no damaged storage"


async def test_a_read_that_makes_progress_does_not_time_out() -> None:
    io, steps = executor(silence_s=4.0), threading.Event()

    def read() -> str:
        for _ in range(8):
            steps.wait(0.6)
            progressed()
        return "all"

    assert await io.read("it", read) == "all"


async def test_when_all_threads_are_silent_new_and_waiting_work_is_refused(storage: Storage) -> None:
    io = executor()
    hanging = [Outcome(io, storage.call) for _ in range(2)]
    waiting = Outcome(io, storage.call)
    await eventually(lambda: isinstance(waiting.error, StorageSilent))
    refused = Outcome(io, storage.call)
    await eventually(lambda: isinstance(refused.error, StorageSilent))
    assert (storage.calls, io.num_running) == (2, 2), "neither was begun"
    assert all(call.result is None and call.error is None for call in hanging), "begun work keeps its callback"

    storage.answers.set()
    await eventually(lambda: [call.result for call in hanging] == ["answer", "answer"])
    assert await io.run(lambda: 7) == 7


async def test_work_that_changes_something_is_waited_for(storage: Storage) -> None:
    io = executor(silence_s=0.1)
    hanging = [Outcome(io, storage.call) for _ in range(2)]
    change = asyncio.ensure_future(io.run(lambda: "changed"))
    refused = Outcome(io, storage.call)
    await eventually(lambda: refused.error)
    assert not change.done()
    storage.answers.set()
    assert await change == "changed"
    await eventually(lambda: all(call.result for call in hanging))


async def test_cancelled_call_is_not_started(storage: Storage) -> None:
    io = executor(silence_s=LONG_S, threads=1)
    hanging = Outcome(io, storage.call)
    begun: list[str] = []
    for wait in (io.run(lambda: begun.append("run")), io.read("it", lambda: begun.append("look"))):
        task = asyncio.ensure_future(wait)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    storage.answers.set()
    await eventually(lambda: hanging.result)
    assert await io.run(lambda: 7) == 7
    assert begun == []


async def test_owners_do_not_wait_for_each_other(storage: Storage) -> None:
    threads = IoThreads(asyncio.get_running_loop(), LONG_S)
    hanging = [Outcome(threads.of("job 1"), storage.call) for _ in range(50)]
    assert await threads.of("job 2").run(lambda: 7) == 7
    assert threads.of("job 1").num_running == 4, "an owner has one executor, whoever asks for it"
    storage.answers.set()
    await eventually(lambda: all(call.result for call in hanging))


async def test_wait_ends_when_all_calls_are_silent(storage: Storage) -> None:
    io, end = executor(), asyncio.get_running_loop().create_future()
    io.submit(storage.call, end.set_result, end.set_exception)
    with pytest.raises(StorageSilent, match="the storage of job 1 has not answered"):
        await io.wait_while_active(end)
    storage.answers.set()
    assert await io.wait_while_active(end) == "answer"


async def test_silence_is_logged_and_work_that_ends_in_time_is_not(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    io = executor(silence_s=3.0, threads=4)
    assert await io.run(lambda: 7) == 7
    hanging = [Outcome(io, storage.call) for _ in range(2)]
    await eventually(lambda: len(caplog.messages) == 2)
    assert caplog.messages[-1] == "the storage of job 1 has not answered for 3 s; 2 of 4 threads wait for it"
    storage.answers.set()
    await eventually(lambda: all(call.result for call in hanging))


def test_the_process_ends_even_if_calls_hang() -> None:
    program = """
import asyncio, threading
from checkpointing.daemon_threads import map_in_daemon_threads
from checkpointing.jobs.loop import LoopIoExecutor
from checkpointing.storage.errors import StorageSilent

async def main():
    io = LoopIoExecutor(asyncio.get_running_loop(), "it", silence_s=0.1)
    hang = threading.Event().wait
    for work in (hang, lambda: map_in_daemon_threads(hang, [None], 1, "it")):
        try:
            await io.read("it", work)
        except StorageSilent:
            print("silent")

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=LONG_S, check=True
    )
    assert done.stdout.split() == ["silent", "silent"]
