"""The record of an attempt when several changes are written at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from checkpointing.clock import ManualClock
from checkpointing.jobs.attempt import Attempt
from checkpointing.jobs.attempt_starter import AttemptFailed, AttemptStarter
from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.job_graph import JobGraph
from checkpointing.model.messages import AfterRestore, Vertex, VertexKind

SINK = Vertex("sink", "Sink: kafka", VertexKind.SINK, 1, "words", AfterRestore.WRITTEN_AGAIN)
FINAL = "file:/savepoints/final"


class HeldIo:
    """An I/O executor that runs each function at once, except the first one, which waits for `may_run`."""

    def __init__(self) -> None:
        self.may_run = asyncio.Event()
        self._held = False

    async def run(self, function: Callable[[], Any]) -> Any:
        if not self._held:
            self._held = True
            await self.may_run.wait()
        return function()


class Bench:
    def __init__(self, directory: Path) -> None:
        self.io: Any = HeldIo()
        ha = SimpleNamespace(
            leader_election=SimpleNamespace(confirm_term=lambda session_id: None),
            attempts=SimpleNamespace(wait_until_free=lambda job_id, limit_s: True),
        )
        services: Any = SimpleNamespace(
            high_availability=ha,
            io_of=lambda job_id: self.io,
            storage_io_of=lambda job_id: self.io,
            jobs_directory=directory,
            clock=ManualClock(),
        )
        store: Any = None
        graph = JobGraph("job", "words", "words.py", "words:main", ())
        self.starter = AttemptStarter(graph, "session", services, store, lambda info: None)
        self.directory = JobDirectory(directory, "job")
        self.directory.path.mkdir(parents=True)
        record = AttemptRecord(1, "timeline", "/work", 0, BatchNumbers("job", 0, 10_000), "", host="here")
        self.attempt = Attempt(record, None, ManualClock(), self.io)
        self.attempt.vertices = (SINK,)

    async def at_once(self, *changes: Any) -> AttemptRecord:
        """Begin the changes in this order, wait until all are written, and return the record on disk."""
        tasks = [asyncio.ensure_future(change) for change in changes]
        for _ in range(10):  # let each change run until it waits
            await asyncio.sleep(0)
        self.io.may_run.set()
        await asyncio.gather(*tasks)
        written = self.directory.read_record()
        assert written is not None
        return written


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_concurrent_changes_do_not_revert_each_other(bench: Bench) -> None:
    final, sinks = bench.starter.begin_final_savepoint(bench.attempt, FINAL), bench.starter.note_sinks(bench.attempt)
    written = await bench.at_once(final, sinks)
    assert (written.final_savepoint, written.sinks) == (FINAL, (SINK,))
    assert bench.attempt.record == written


async def test_an_attempt_that_ended_remains_ended(bench: Bench) -> None:
    written = await bench.at_once(
        bench.starter.begin_final_savepoint(bench.attempt, FINAL), bench.starter.end(bench.attempt, 0.0)
    )
    assert (written.ended, written.final_savepoint) == (True, FINAL)
    assert bench.attempt.record == written


async def test_sinks_are_used_even_if_their_record_could_not_be_written(bench: Bench) -> None:
    """The job manager has the sinks in memory, and uses them for the next restart."""
    bench.directory.path.rmdir()
    with pytest.raises(AttemptFailed):
        await bench.at_once(bench.starter.note_sinks(bench.attempt))
    assert bench.attempt.record.sinks == (SINK,)
