"""Continuing from a dead attempt's local files, with real Spark: no batch is repeated or lost, damage is detected."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.local_recovery import LiveQuery, LocalState, LocalStateUnusable, write_record
from checkpointing.checkpoint_location.started_batches import StartedBatches
from checkpointing.model.messages import VertexKind
from checkpointing.spark.program import guard_batch_functions
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.timelines import begin_timeline
from checkpointing.storage import verify
from tests.checkpointing.spark.bench import LAYOUTS, Bench
from tests.checkpointing.spark.test_local_state_damaged import overwritten

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "2")
    return spark


class Lives(Bench):
    """One query with several attempts, each with a separate work directory and a different division into batches."""

    def lines_by(self, files_per_batch: int) -> Any:
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", str(files_per_batch))
        return lines.load(str(self.input))

    def work(self, attempt: int) -> Path:
        return self.root / f"attempt-{attempt}"

    def attempt(self, number: int, writer: Any) -> RunningQuery:
        planned = self.planned(writer, self.work(number) / "queries" / "0-words")
        started_after = LocalState.read(self.work(number - 1)).build("words", planned.location) if number > 1 else None
        self.is_ready(number, planned, started_after)
        query = RunningQuery(planned)
        query.start()
        return query

    def is_ready(self, number: int, planned: PlannedQuery, started_after: int | None) -> None:
        """Write what a driver records before it starts its queries."""
        begin_timeline(planned.location, "timeline", started_after)
        sink_path = str(planned.output.local) if planned.output else None
        stateful = [vertex for vertex in planned.plan.vertices if vertex.kind is VertexKind.STATEFUL]
        partitions = {str(operator): vertex.parallelism for operator, vertex in enumerate(stateful)}
        write_record(self.work(number), [LiveQuery("words", "queries/0-words", started_after, sink_path, partitions)])

    def left_by(self, number: int) -> LocalState:
        state = LocalState.read(self.work(number))
        state.check()
        return state


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Lives:
    return Lives(spark, tmp_path, LAYOUTS["rocksdb format 2"])


class Crash(Exception):
    pass


class FencedCounts:
    """A sink that skips batches that it has, like PostgresSink. `crash` ends the query within a batch."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.batches: list[int] = []
        self.crash: str | None = None

    def __call__(self, frame: Any, batch: int) -> None:
        if self.crash == "before":
            raise Crash
        if not self.batches or batch > self.batches[-1]:
            rows = {row["value"]: row["count"] for row in frame.collect()}
            self.batches.append(batch)
            self.counts.update(rows)
        else:
            frame.write.format("noop").mode("overwrite").save()
        if self.crash == "after":
            raise Crash


@pytest.mark.parametrize("crash", ["before", pytest.param("after", marks=pytest.mark.nightly)])
def test_the_batch_in_flight_runs_again_with_the_same_input(bench: Lives, crash: str) -> None:
    sink = FencedCounts()

    def counting(files_per_batch: int) -> Any:
        counts = bench.lines_by(files_per_batch).groupBy("value").count()
        return counts.writeStream.outputMode("update").foreachBatch(sink)

    number = 1
    query = bench.attempt(number, counting(1))
    for _ in range(2):
        bench.feed()
        bench.feed()
        bench.run_all(query)
        sink.crash = crash
        bench.feed()
        with pytest.raises(Exception, match="Crash"):
            bench.run_all(query)
        sink.crash = None
        bench.feed()
        left = bench.left_by(number)
        assert left.in_flight
        assert left.all_advanced
        number += 1
        query = bench.attempt(number, counting(number))
        bench.run_all(query)
        assert sink.counts == bench.expected
    assert sink.batches == list(range(len(sink.batches))), "a batch was replayed"
    checkpoint = bench.snapshot(query)
    query.stop()
    assert verify(checkpoint.location, deep=True).batches == {"words": sink.batches[-1]}

    restored = bench.planned(counting(1), bench.work(number + 1) / "queries" / "0-words")
    bench.is_ready(number + 1, restored, bench.restore(checkpoint, restored).after)
    assert not bench.left_by(number + 1).some_advanced
    overwritten(restored.location / "metadata")
    with pytest.raises(LocalStateUnusable, match="metadata is damaged"):
        bench.left_by(number + 1)


def test_a_file_sinks_log_that_is_ahead_by_the_batch_in_flight_is_exact(bench: Lives) -> None:
    """The attempt ended between the sink's commit and Spark's commit."""
    output = bench.root / "out"

    def writing(files_per_batch: int) -> Any:
        return bench.lines_by(files_per_batch).writeStream.format("json").option("path", str(output))

    query = bench.attempt(1, writing(1))
    for _ in range(3):
        bench.feed()
    bench.run_all(query)
    query.stop()
    for name in ("2", ".2.crc"):
        (query.planned.location / "commits" / name).unlink()
    left = bench.left_by(1)
    assert (left.batches, left.in_flight) == ({"words": 1}, True)
    bench.feed()
    again = bench.attempt(2, writing(2))
    bench.run_all(again)
    again.stop()
    rows = bench.spark.read.json(str(output)).collect()
    assert Counter(row["value"] for row in rows) == bench.expected


@pytest.mark.parametrize(
    ("layout", "batches"),
    [
        pytest.param("rocksdb format 2", 1, marks=pytest.mark.nightly),
        ("rocksdb format 2", 3),
        pytest.param("hdfs", 3, marks=pytest.mark.nightly),
    ],
)
def test_a_file_sink_log_that_is_ahead_of_a_state_is_not_continued(
    spark: Any, tmp_path: Path, layout: str, batches: int
) -> None:
    """Spark would skip the batch as written, and then miss the state that it did not compute."""
    bench = Lives(spark, tmp_path, LAYOUTS[layout])

    def writing() -> Any:
        once = bench.lines_by(1).dropDuplicates(["value"])
        return once.writeStream.format("json").option("path", str(tmp_path / "out"))

    query = bench.attempt(1, writing())
    for _ in range(batches):
        bench.feed()
    bench.run_all(query)
    query.stop()
    bench.left_by(1)
    last = batches - 1
    for name in (f"{last}", f".{last}.crc"):
        (query.planned.location / "commits" / name).unlink()
    bench.feed()
    with pytest.raises(LocalStateUnusable, match=f"_spark_metadata has batch {last}, so Spark would skip it"):
        bench.run_all(bench.attempt(2, writing()))


@pytest.mark.nightly
def test_missing_newer_commits_are_detected_by_the_log_of_a_file_sink(bench: Lives) -> None:
    output = bench.root / "out"
    query = bench.attempt(1, bench.lines().writeStream.format("json").option("path", str(output)))
    for _ in range(3):
        bench.feed()
    bench.run_all(query)
    query.stop()
    for log in ("commits", "offsets"):
        for name in ("1", "2", ".1.crc", ".2.crc"):
            (query.planned.location / log / name).unlink()
    with pytest.raises(
        LocalStateUnusable, match="_spark_metadata ends with batch 2, but the newest offsets are of batch 0"
    ):
        bench.left_by(1)


def test_a_batch_without_state_whose_offsets_were_removed_is_missed(bench: Lives) -> None:
    """The batch's function may have written rows. A new batch of the same number could have different rows."""
    sink, location = FencedCounts(), bench.work(1) / "queries" / "0-words"
    begun = StartedBatches([location])
    guard_batch_functions(begun.note)
    try:
        rows = bench.lines_by(1).selectExpr("value", "1 AS count")
        query = bench.attempt(1, rows.writeStream.foreachBatch(sink))
        bench.feed()
        bench.run_all(query)
        sink.crash = "after"
        bench.feed()
        with pytest.raises(Exception, match="Crash"):
            bench.run_all(query)
    finally:
        guard_batch_functions()
    assert bench.left_by(1).in_flight
    for name in ("1", ".1.crc"):
        (location / "offsets" / name).unlink()
    with pytest.raises(LocalStateUnusable, match="batch 1 had begun, the offsets end with batch 0"):
        LocalState.read(bench.work(1))
