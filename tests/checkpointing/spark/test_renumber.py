"""Restored locations whose batch numbers move forward, with real Spark, in every layout of the state store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpointing.spark.layout import committed_batches
from checkpointing.spark.renumber import GREATEST, renumber
from checkpointing.spark.restore import Snapshot, restore_query
from checkpointing.spark.running_query import RunningQuery
from tests.checkpointing.spark.bench import DRIVERS_LAYOUT, LAYOUTS, OTHER_LAYOUTS, STATE, Bench

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DELTAS = [
    pytest.param(2, id="from a whole state", marks=pytest.mark.nightly),
    pytest.param(10, id="from changes only"),
]
BATCHES = 5
NO_SPARK: Any = None


class IdempotentSink:
    """As Spark's guide recommends: a batch whose number is known is skipped. It cannot go back to an older state."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.batches: dict[int, int] = {}
        self.skipped = 0

    def __call__(self, frame: Any, batch: int) -> None:
        rows = frame.collect()
        if batch in self.batches:
            self.skipped += len(rows)
            return
        self.batches[batch] = len(rows)
        self.counts.update({row["value"]: row["count"] for row in rows})


@pytest.fixture(params=[DRIVERS_LAYOUT, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHER_LAYOUTS)])
def bench(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Bench:
    changelog = {"rocksdb.changelogCheckpointing.enabled": "true"}
    return Bench(spark, tmp_path, {**changelog, **LAYOUTS[request.param]})


def counting(bench: Bench, sink: IdempotentSink, name: str) -> RunningQuery:
    writer = bench.lines().groupBy("value").count().writeStream.outputMode("update").foreachBatch(sink)
    return RunningQuery(bench.planned(writer, bench.root / name))


def run(bench: Bench, query: RunningQuery, batches: int) -> None:
    query.start()
    try:
        for _ in range(batches):
            bench.feed()
            bench.run_all(query)
    finally:
        query.stop()


def restored(bench: Bench, sink: IdempotentSink, batch: int, to: int | None) -> RunningQuery:
    """A query that ran for BATCHES, taken back to `batch`, whose number becomes `to`."""
    first = counting(bench, sink, "first")
    run(bench, first, BATCHES)
    checkpoint = bench.snapshot(first, batch=batch)
    again = counting(bench, sink, "again")
    location = again.planned.location
    assert restore_query(Snapshot(checkpoint), "words", again.planned.plan.vertices, location) == batch
    if to is not None:
        renumber(bench.spark, location, batch, to)
    return again


@pytest.mark.parametrize("deltas", DELTAS)
@pytest.mark.parametrize("batch", [*(pytest.param(batch, marks=pytest.mark.nightly) for batch in (0, 2)), 3])
def test_a_sink_that_knows_batch_numbers_loses_nothing(batch: int, deltas: int, bench: Bench) -> None:
    bench.spark.conf.set(f"{STATE}minDeltasForSnapshot", str(deltas))
    sink = IdempotentSink()
    again = restored(bench, sink, batch, 1000)
    run(bench, again, 3)
    assert sink.skipped == 0
    assert sink.counts == bench.expected
    assert min(number for number in sink.batches if number >= BATCHES) == 1001

    run(bench, counting(bench, sink, "again"), 1)  # what the renumbered life wrote is a location like any other
    assert sink.counts == bench.expected
    assert max(sink.batches) == committed_batches(path.name for path in (bench.root / "again/commits").iterdir())[-1]


@pytest.mark.nightly
@pytest.mark.parametrize("deltas", DELTAS)
def test_a_renumbered_location_is_checkpointed_and_renumbered_again(deltas: int, bench: Bench) -> None:
    bench.spark.conf.set(f"{STATE}minDeltasForSnapshot", str(deltas))
    sink = IdempotentSink()
    second = restored(bench, sink, 2, 1000)
    run(bench, second, 2)
    checkpoint = bench.snapshot(second, checkpoint_id=2, batch=1001)
    third = counting(bench, sink, "third")
    location = third.planned.location
    assert restore_query(Snapshot(checkpoint), "words", third.planned.plan.vertices, location) == 1001
    renumber(bench.spark, location, 1001, 5000)
    run(bench, third, 2)
    assert sink.skipped == 0
    assert sink.counts == bench.expected
    assert min(number for number in sink.batches if number > 1100) == 5001


@pytest.mark.nightly
def test_without_new_numbers_such_a_sink_drops_rows(spark: Any, tmp_path: Path) -> None:
    bench = Bench(spark, tmp_path, LAYOUTS[DRIVERS_LAYOUT])
    sink = IdempotentSink()
    run(bench, restored(bench, sink, 2, None), 1)
    assert sink.skipped > 0


@pytest.mark.parametrize("to", [2, 1, GREATEST])
def test_a_number_that_is_not_ahead_or_too_great_is_refused(to: int, tmp_path: Path) -> None:
    """Spark counts numbers in 32 bits when it removes old ones."""
    with pytest.raises(ValueError, match=f"batch 2 cannot become batch {to}"):
        renumber(NO_SPARK, tmp_path, 2, to)
