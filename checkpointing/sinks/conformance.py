"""Tests of what a sink must do so that a job's output is exact. Any sink can run them.

    class TestMySink(SinkConformance):
        def make_sink(self): ...      # a fresh sink, as a new driver process makes it; always the same target
        def batch(self, *words): ...  # a DataFrame with these words, as the sink wants its rows
        def read(self): ...           # every word that a reader of the target sees now, in any order

A sink that passes may have the class attribute `goes_back = True`, so that no warning about doubled rows appears.
pytest runs the subclass. Fixtures set up the three methods: see tests/checkpointing/sinks/test_sinks_conform.py, which
tests our own sinks. A sink that replaces rows by key conforms if each word is a key.
"""

from __future__ import annotations

import itertools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from checkpointing.sinks.context import FencedOut, SinkContext, set_current
from checkpointing.sinks.lineage import Lineage, begin

QUERY = "query"
# Each test gets its own range of batch numbers. No test writes 1,000 batches, so ranges do not overlap.
_FIRST_NUMBERS = itertools.count(1000, 1000)

Sink = Callable[[Any, int], None]


@dataclass(frozen=True)
class SnapshotOfOutput:
    """A state that can be restored: its lineage, and the last batch that it contains.

    `ordinal` is the batch's number without the numbers that restores skipped.
    """

    lineage: Lineage
    batch: int
    ordinal: int


@dataclass
class PlayedJob:
    """Makes this process one attempt of a job after the other, as the driver does.

    `new_numbers`: a restore gives batches numbers that no earlier batch has used. See `number_of`.
    """

    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    lineage: Lineage = ()
    number: int = 0
    new_numbers: bool = False
    passed_over: int = 0

    def start(self, timeline: str, restored: SnapshotOfOutput | None = None) -> SinkContext:
        """Begin the next attempt, in a new timeline: from `restored`, or without state."""
        name = f"{timeline}-{self.job_id}"
        if restored is None:
            self.lineage, self.passed_over = begin((), name, None), 0
            return self.next_attempt()
        first = next(_FIRST_NUMBERS) if self.new_numbers else restored.batch
        self.lineage = begin(restored.lineage, name, restored.batch, numbered_after=first)
        self.passed_over = first - restored.ordinal
        return self.next_attempt()

    def number_of(self, ordinal: int) -> int:
        """Return the number of the batch at `ordinal`, which is the batch's number if no numbers had been skipped."""
        return ordinal + self.passed_over

    def next_attempt(self) -> SinkContext:
        """Begin the next attempt, in the timeline of the last one (local recovery)."""
        self.number += 1
        return self.activate(
            SinkContext(self.job_id, self.number, self.lineage[-1].timeline, {}, {QUERY: self.lineage})
        )

    def activate(self, context: SinkContext) -> SinkContext:
        set_current(context)
        return context

    def snapshot(self, ordinal: int) -> SnapshotOfOutput:
        return SnapshotOfOutput(self.lineage, self.number_of(ordinal), ordinal)


class SinkConformance(ABC):
    """The base class of the tests.

    The sink under test must have the `query` QUERY, because no streaming query runs here.
    """

    @abstractmethod
    def make_sink(self) -> Sink: ...

    @abstractmethod
    def batch(self, *words: str) -> Any: ...

    @abstractmethod
    def read(self) -> Sequence[str]: ...

    def crashes(self) -> Iterable[Callable[[], AbstractContextManager[None]]]:
        """Return ways in which the sink may die in the middle of a batch. Each raises where a process would end."""
        return ()

    def failing_batch(self, *words: str) -> Any:
        """Return a batch with some of the words, then an exception in a task."""

        def fail(batches: Iterator[Any]) -> Iterator[Any]:
            yield next(batches)
            raise RuntimeError("a task failed")

        frame = self.batch(*words)
        return frame.mapInArrow(fail, frame.schema)

    def holds(self, words: str) -> None:
        found, expected = sorted(self.read()), sorted(words.split())
        _require(found == expected, f"the sink contains {' '.join(found)} instead of {' '.join(expected)}")

    # --- the rules ---------------------------------------------------------------------------------------------------

    def test_each_batch_is_in_the_output_once(self) -> None:
        job = PlayedJob(new_numbers=True)
        job.start("A")
        sink = self.make_sink()
        sink(self.batch("a0", "b0"), job.number_of(0))
        sink(self.batch(), job.number_of(1))
        sink(self.batch("a2"), job.number_of(2))
        self.holds("a0 b0 a2")

    def test_a_batch_that_runs_again_in_its_timeline_is_in_the_output_once(self) -> None:
        """The sink had the batch, and the driver died before Spark recorded it."""
        job = PlayedJob(new_numbers=True)
        job.start("A")
        sink = self.make_sink()
        sink(self.batch("a0"), job.number_of(0))
        sink(self.batch("a1"), job.number_of(1))
        job.next_attempt()
        sink = self.make_sink()
        sink(self.batch("a1"), job.number_of(1))
        sink(self.batch("a2"), job.number_of(2))
        self.holds("a0 a1 a2")

    def test_batches_after_the_restored_state_are_removed(self) -> None:
        job = PlayedJob(new_numbers=True)
        job.start("A")
        sink = self.make_sink()
        for batch in range(4):
            sink(self.batch(f"a{batch}"), job.number_of(batch))
        job.start("B", job.snapshot(1))
        self.make_sink()(self.batch("b2"), job.number_of(2))
        self.holds("a0 a1 b2")

    def test_a_job_that_starts_without_state_removes_its_earlier_output(self) -> None:
        job = PlayedJob(new_numbers=True)
        job.start("A")
        self.make_sink()(self.batch("a0"), job.number_of(0))
        job.start("B")
        self.make_sink()(self.batch("b0"), job.number_of(0))
        self.holds("b0")

    def test_restoring_an_abandoned_state_brings_its_rows_back(self) -> None:
        """The input before the restored state is not read again, so nothing would write those rows again."""
        job = PlayedJob(new_numbers=True)
        job.start("A")
        sink = self.make_sink()
        for batch in range(3):
            sink(self.batch(f"a{batch}"), job.number_of(batch))
        older, newer = job.snapshot(0), job.snapshot(2)
        job.start("B", newer)
        self.make_sink()(self.batch("b3"), job.number_of(3))
        b = job.snapshot(3)
        job.start("C", older)
        self.make_sink()(self.batch("c1"), job.number_of(1))
        self.holds("a0 c1")
        job.start("D", newer)
        self.make_sink()(self.batch("d3"), job.number_of(3))
        self.holds("a0 a1 a2 d3")
        job.start("E", b)
        self.make_sink()(self.batch("e4"), job.number_of(4))
        self.holds("a0 a1 a2 b3 e4")

    def test_another_job_that_continues_from_the_state_takes_over_the_output(self) -> None:
        job = PlayedJob(new_numbers=True)
        former = job.start("A")
        sink = self.make_sink()
        for batch in range(3):
            sink(self.batch(f"a{batch}"), job.number_of(batch))
        other = PlayedJob(new_numbers=True)
        other.start("B", job.snapshot(1))
        self.make_sink()(self.batch("b2"), other.number_of(2))
        job.activate(former)
        self._refuses(sink, 3)
        self.holds("a0 a1 b2")

    def test_an_older_attempt_cannot_write(self) -> None:
        job = PlayedJob(new_numbers=True)
        old_context = job.start("A")
        old = self.make_sink()
        old(self.batch("a0"), job.number_of(0))
        job.next_attempt()
        self.make_sink()(self.batch("a1"), job.number_of(1))
        job.activate(old_context)
        self._refuses(old, 1)
        self._refuses(old, 2)
        self._refuses(self.make_sink(), 2)
        self.holds("a0 a1")

    def test_a_failed_batch_writes_no_rows(self) -> None:
        job = PlayedJob(new_numbers=True)
        job.start("A")
        sink = self.make_sink()
        sink(self.batch("a0"), job.number_of(0))
        with _raises("a task failed"):
            sink(self.failing_batch("a1", "b1"), job.number_of(1))
        self.holds("a0")
        sink(self.batch("a1"), job.number_of(1))
        self.holds("a0 a1")

    def test_a_crash_during_a_batch_neither_loses_nor_duplicates_rows(self) -> None:
        """Try every way of the sink's `crashes`. Then the batch runs again, or an older state is restored."""
        job = PlayedJob(new_numbers=True)
        for number, crash in enumerate(self.crashes()):
            job.start(f"A{number}")
            sink = self.make_sink()
            sink(self.batch("a0"), job.number_of(0))
            deaths = [self._crashes(job, crash, sink, "a1")]
            job.next_attempt()
            self.make_sink()(self.batch("a1"), job.number_of(1))
            self.holds("a0 a1")
            job.start(f"B{number}", job.snapshot(0))
            deaths.append(self._crashes(job, crash, self.make_sink(), "b1"))
            job.start(f"C{number}", job.snapshot(0))
            self.make_sink()(self.batch("c1"), job.number_of(1))
            self.holds("a0 c1")
            _require(any(deaths), f"crash {number} never happened")

    def _crashes(
        self, job: PlayedJob, crash: Callable[[], AbstractContextManager[None]], sink: Sink, word: str
    ) -> bool:
        try:
            with crash():
                sink(self.batch(word), job.number_of(1))
        except Exception:  # noqa: BLE001 - the sink is dead after any error
            return True
        return False

    def _refuses(self, sink: Sink, batch: int) -> None:
        try:
            sink(self.batch("late"), batch)
        except FencedOut:
            return
        raise AssertionError(f"batch {batch} of an attempt that is over was not refused with FencedOut")


@contextmanager
def _raises(text: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if text not in str(error):
            raise
        return
    raise AssertionError("the sink raised nothing")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)
