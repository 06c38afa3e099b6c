"""What a file sink's readers see when a query starts again from older state or from none, with real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.spark.restore import Snapshot, restore_query
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.starting_state import NoState
from tests.checkpointing.spark.test_restore_exactness import LAYOUTS, Bench
from tests.spark_session import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Iterator[Any]:
    with spark_session(
        tmp_path_factory.mktemp("session"), {"spark.sql.streaming.fileSink.log.compactInterval": "3"}
    ) as session:
        yield session


class FileSink(Bench):
    """Lines into a file sink, cut into batches in another way each time."""

    @property
    def output(self) -> Path:
        return self.root / "out"

    def writing(self, name: str, *, files_per_batch: int = 1) -> PlannedQuery:
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", str(files_per_batch))
        writer = lines.load(str(self.input)).writeStream.format("json").option("path", str(self.output))
        return self.planned(writer, self.root / name)

    def run(self, planned: PlannedQuery, batches: int) -> RunningQuery:
        query = RunningQuery(planned)
        query.start()
        for _ in range(batches):
            self.feed()
        self.run_all(query)
        return query

    def rows(self) -> Counter[str]:
        return Counter(row["value"] for row in self.spark.read.json(str(self.output)).collect())


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> FileSink:
    return FileSink(spark, tmp_path, LAYOUTS["rocksdb format 2"])


@pytest.mark.parametrize("batches", [2, 3], ids=["between two compactions", "at a compaction"])
def test_at_least_once_rows_stay_visible_and_none_is_lost(bench: FileSink, batches: int) -> None:
    first = bench.run(bench.writing("first"), batches)
    checkpoint = bench.snapshot(first)
    for _ in range(5):
        bench.feed()
    bench.run_all(first)
    first.stop()
    seen = bench.rows()
    again = bench.writing("again", files_per_batch=2)
    restore_query(Snapshot(checkpoint), "words", again.plan.vertices, again.location, keep_output=True)
    assert bench.rows() == seen, "a restore took rows from the readers"
    query = bench.run(again, 1)
    query.stop()
    found = bench.rows()
    assert all(found[word] >= count for word, count in bench.expected.items()), "rows were lost"
    assert found.total() > bench.expected.total(), "nothing was written twice: this test shows nothing"


def test_what_an_earlier_attempt_wrote_hides_nothing_of_one_that_starts_without_state(bench: FileSink) -> None:
    first = bench.writing("first")
    NoState("job").build(first)
    bench.run(first, 3).stop()
    again = bench.writing("again", files_per_batch=2)
    NoState("job").build(again)
    bench.run(again, 1).stop()
    assert bench.rows() == bench.expected


def test_a_log_that_was_there_before_the_job_is_left_alone(bench: FileSink) -> None:
    bench.run(bench.writing("before"), 2).stop()
    seen = bench.rows()
    for name in ("first", "again"):
        NoState("job").build(bench.writing(name))
    assert bench.rows() == seen
