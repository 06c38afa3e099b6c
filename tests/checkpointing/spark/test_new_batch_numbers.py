"""Queries that are restored with new batch numbers, with a sink that skips known numbers, with real Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.local_recovery import LocalState
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.sinks.context import SinkContext
from checkpointing.spark.renumber import first_batch
from checkpointing.spark.restore import RestoreRefused
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.starting_state import ContinuedBatch, FormerAttempt, build_queries
from checkpointing.spark.timelines import begin_timeline
from tests.checkpointing.spark.bench import DRIVERS_LAYOUT, LAYOUTS, OTHER_LAYOUTS, RANGES, Bench
from tests.checkpointing.spark.renumbering import IdempotentSink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
NUMBERS = BatchNumbers("family", 5000, 15_000)


@dataclass
class Jobs(Bench):
    """A count that a job writes to `sink` in several attempts."""

    sink: IdempotentSink = field(default_factory=IdempotentSink)
    last: ContinuedBatch | None = None

    def counting(self, name: str) -> PlannedQuery:
        writer = self.lines().groupBy("value").count().writeStream.outputMode("update").foreachBatch(self.sink)
        return self.planned(writer, self.root / name / "queries" / "0-words")

    def run(self, planned: PlannedQuery, batches: int) -> RunningQuery:
        query = RunningQuery(planned)
        query.start()
        for _ in range(batches):
            self.feed()
            self.run_all(query)
        return query

    def restored(self, checkpoint: CompletedCheckpoint, name: str, batches: int = 2) -> RunningQuery:
        planned = self.counting(name)
        self.last = self.restore(checkpoint, planned)
        begin_timeline(planned.location, name, self.last.restored, numbered_after=self.last.number)
        return self.run(planned, batches)

    def left_by(self, name: str) -> FormerAttempt:
        work = self.root / name
        (self.root / "queries.json").rename(work / "queries.json")
        return FormerAttempt(LocalState.read(work), work, keep_output=False, writers_are_gone=True)


@pytest.fixture(params=[DRIVERS_LAYOUT, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHER_LAYOUTS)])
def jobs(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Jobs:
    return Jobs(spark, tmp_path, {"rocksdb.changelogCheckpointing.enabled": "true", **LAYOUTS[request.param]})


@pytest.fixture
def rocksdb(spark: Any, tmp_path: Path) -> Jobs:
    return Jobs(spark, tmp_path, LAYOUTS[DRIVERS_LAYOUT])


@pytest.mark.nightly
def test_no_row_is_lost_when_an_older_state_is_restored_twice_and_then_a_newer_one(jobs: Jobs) -> None:
    first = jobs.run(jobs.counting("first"), 2)
    older = jobs.snapshot(first, 1)
    jobs.feed()
    jobs.run_all(first)
    newer = jobs.snapshot(first, 2)
    first.stop()
    used = set(jobs.sink.batches)
    for number, state in enumerate((older, older, newer)):
        query = jobs.restored(state, f"restored-{number}")
        assert jobs.sink.skipped == 0
        assert jobs.sink.counts == jobs.expected
        again = jobs.snapshot(query, 3 + number)
        query.stop()
        assert not used & {batch for batch in jobs.sink.batches if batch > max(used)}
        used = set(jobs.sink.batches)
    jobs.restored(again, "of a restored one").stop()
    assert jobs.sink.skipped == 0
    assert jobs.sink.counts == jobs.expected


@pytest.mark.nightly
def test_a_restored_state_is_renumbered_and_then_rescaled(rocksdb: Jobs) -> None:
    query = rocksdb.run(rocksdb.counting("on-2"), 2)
    for partitions in (5, 3):
        checkpoint = rocksdb.snapshot(query, partitions)
        query.stop()
        rocksdb.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        query = rocksdb.restored(checkpoint, f"on-{partitions}")
        assert rocksdb.last is not None
        assert rocksdb.last.after == rocksdb.last.number + 1
        assert rocksdb.sink.skipped == 0
        assert rocksdb.sink.counts == rocksdb.expected
    query.stop()


def restored_and_stopped(jobs: Jobs, *, crash: bool) -> int:
    """Stop a restored query and return its last batch. With `crash`, this batch is not committed."""
    first = jobs.run(jobs.counting("first"), 2)
    older = jobs.snapshot(first, 1)
    first.stop()
    query = jobs.restored(older, "restored")
    query.stop()
    last = query.files.last_commit()
    assert last is not None
    if crash:
        for name in (f"{last}", f".{last}.crc"):
            (query.planned.location / "commits" / name).unlink()
    return last


@pytest.mark.parametrize("crash", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["in a batch", "idle"])
def test_a_renumbered_query_is_continued_where_it_was(rocksdb: Jobs, crash: bool) -> None:
    last = restored_and_stopped(rocksdb, crash=crash)
    continued = rocksdb.counting("continued")
    found = build_queries(rocksdb.left_by("restored"), rocksdb.spark, rocksdb.root, [continued])["words"]
    assert found == ContinuedBatch(*[last - crash] * 3)
    lineage = begin_timeline(continued.location, "restored", found.restored, numbered_after=found.number)
    assert [segment.timeline for segment in lineage] == ["restored"]
    rocksdb.run(continued, 2).stop()
    assert rocksdb.sink.skipped == (0 if not crash else rocksdb.sink.batches[last])
    assert rocksdb.sink.counts == rocksdb.expected


@pytest.mark.nightly
@pytest.mark.parametrize("crash", [False, True], ids=["idle", "in a batch"])
def test_only_a_query_without_a_batch_in_flight_is_continued_with_other_numbers(rocksdb: Jobs, crash: bool) -> None:
    """The sink may already know the number of an uncommitted batch."""
    last = restored_and_stopped(rocksdb, crash=crash)
    continued, numbers = rocksdb.counting("continued"), next(RANGES)
    state = rocksdb.left_by("restored")
    found = build_queries(state, rocksdb.spark, rocksdb.root, [continued], numbers=numbers)["words"]
    assert found.number == (last - 1 if crash else first_batch(numbers, 1))
    rocksdb.run(continued, 2).stop()
    assert rocksdb.sink.counts == rocksdb.expected


@pytest.mark.nightly
def test_a_state_of_another_format_is_refused_with_its_file_and_format(rocksdb: Jobs) -> None:
    first = rocksdb.run(rocksdb.counting("first"), 2)
    commit = first.planned.location / "commits" / "1"
    commit.with_name(".1.crc").unlink()
    commit.write_text(commit.read_text().replace("v2", "v7", 1))
    checkpoint = rocksdb.snapshot(first, 1)
    first.stop()
    with pytest.raises(RestoreRefused, match=r"Query 'words' .*commits/1 has format 'v7', but .*v1 and v2"):
        rocksdb.restored(checkpoint, "again")


@pytest.mark.nightly
def test_the_rows_of_a_function_are_distinguished_from_abandoned_ones(rocksdb: Jobs) -> None:
    """Each batch adds its rows once, with its batch number. A view can then exclude the abandoned batches."""
    rows: dict[int, list[str]] = {}

    def add(frame: Any, batch: int) -> None:
        rows.setdefault(batch, [row["value"] for row in frame.collect()])

    def writing(name: str) -> PlannedQuery:
        return rocksdb.planned(rocksdb.lines().writeStream.foreachBatch(add), rocksdb.root / name)

    first = rocksdb.run(writing("first"), 2)
    begin_timeline(first.planned.location, "first", None)
    older = rocksdb.snapshot(first, 1)
    rocksdb.feed()
    rocksdb.run_all(first)
    newer = rocksdb.snapshot(first, 2)
    rocksdb.feed()
    rocksdb.run_all(first)
    first.stop()
    for number, state in enumerate((older, newer, older)):
        planned = writing(f"again-{number}")
        found = rocksdb.restore(state, planned)
        name = f"timeline {number}"
        lineage = begin_timeline(planned.location, name, found.restored, numbered_after=found.number)
        context = SinkContext("job", 1, name, {}, {"words": lineage})
        rocksdb.run(planned, 1).stop()
        abandoned = context.abandoned("words")
        assert abandoned
        counting = [batch for batch in rows if not any(first <= batch <= last for first, last in abandoned)]
        assert sorted(row for batch in counting for row in rows[batch]) == sorted(rocksdb.expected.elements())


@pytest.mark.parametrize("interval", [1, 3, 10, 1000])
def test_the_first_number_ends_an_interval_of_the_file_sinks_log(interval: int) -> None:
    batch = first_batch(NUMBERS, interval)
    assert (batch + 1) % interval == 0
    assert NUMBERS.first <= batch - interval < batch < NUMBERS.first + 2 * interval
