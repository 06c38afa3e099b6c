"""The visible progress of a batch while it computes, with a real Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpointing.spark.status_stores import task_progress

pytestmark = pytest.mark.spark


class Batch:
    """A batch of a query whose function runs one SQL execution whenever the test requests it."""

    def __init__(self, spark: Any, name: str) -> None:
        self._spark, self._works, self._ends = spark, threading.Semaphore(0), threading.Event()
        self.is_waiting = threading.Event()
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        self.query = rows.writeStream.queryName(name).foreachBatch(self._run).start()
        assert self.is_waiting.wait(120)

    def _run(self, frame: Any, batch: int) -> None:
        while not self._ends.is_set():
            self.is_waiting.set()
            self._works.acquire()
            frame.write.format("noop").mode("append").save()

    def work(self) -> None:
        self.is_waiting.clear()
        self._works.release()
        assert self.is_waiting.wait(120)

    def end(self) -> None:
        self._ends.set()
        self._works.release()
        self.query.stop()


@pytest.fixture
def start(spark: Any) -> Iterator[Callable[[str], Batch]]:
    started: list[Batch] = []

    def start(name: str) -> Batch:
        started.append(Batch(spark, name))
        return started[-1]

    yield start
    for batch in started:
        batch.end()


def test_a_waiting_batch_makes_no_progress_and_another_query_is_ignored(
    spark: Any, start: Callable[[str], Batch]
) -> None:
    waits, works = start("waits"), start("works")
    run_id = str(waits.query.runId)
    before = task_progress(spark, run_id)
    assert before, "the execution of the batch itself"
    works.work()
    assert task_progress(spark, run_id) == before
    of_the_other = {id_ for id_, _ in task_progress(spark, str(works.query.runId))}
    assert not of_the_other & {id_ for id_, _ in before}
