"""Tests of restores with new batch numbers, for one layout of the state store, with the installed PySpark.

    python -m tests.checkpointing.spark.renumbering DIRECTORY LAYOUT     restores, and prints the errors as JSON

A JVM of Spark 4.0 writes whole RocksDB states of one format only, so each layout runs in a separate process. The module
imports only packages that the Python of every job has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

from checkpointing.spark.renumber import renumber
from checkpointing.spark.restore import Snapshot, restore_query
from checkpointing.spark.rocksdb_metadata import fit_metadata
from checkpointing.spark.running_query import RunningQuery
from tests.checkpointing.spark.bench import LAYOUTS, Bench
from tests.checkpointing.spark.file_sink_bench import FileSink
from tests.spark_session import put_back, spark_session

BATCHES = 5
CHANGELOG = {"rocksdb.changelogCheckpointing.enabled": "true"}


class IdempotentSink:
    """A sink as Spark's guide recommends: it skips batch numbers that it knows. It cannot return to an older state."""

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
    """Run a query for BATCHES, restore it to `batch` with the new number `to`, and return the restored query."""
    first = counting(bench, sink, "first")
    run(bench, first, BATCHES)
    checkpoint = bench.snapshot(first, batch=batch)
    again = counting(bench, sink, "again")
    location = again.planned.location
    assert restore_query(Snapshot(checkpoint), "words", again.planned.plan.vertices, location) == batch
    if to is not None:
        renumber(bench.spark, location, batch, to)
        fit_metadata(location, bench.spark.version)
    return again


# --- under another PySpark -------------------------------------------------------------------------------------------


def mistakes_with_state(spark: Any, root: Path, layout: str, batch: int, deltas: int) -> Iterator[str]:
    bench = Bench(spark, root, {**CHANGELOG, **LAYOUTS[layout], "minDeltasForSnapshot": str(deltas)})
    root.mkdir()
    sink = IdempotentSink()
    run(bench, restored(bench, sink, batch, 1000), 3)
    run(bench, counting(bench, sink, "again"), 1)
    if sink.skipped or sink.counts != bench.expected:
        yield f"{root.name}: {sink.skipped} rows skipped, batches {sorted(sink.batches)}"


def mistakes_in_files(spark: Any, root: Path, layout: str) -> Iterator[str]:
    bench = FileSink(spark, root, LAYOUTS[layout])
    root.mkdir()
    first = bench.run(bench.writing("first"), 2)
    older = bench.snapshot(first, 1)
    bench.feed()
    bench.run_all(first)
    newer = bench.snapshot(first, 2)
    first.stop()
    for name, state in {"back": older, "forward": newer}.items():
        bench.restored(state, name).stop()
        if bench.rows() != bench.expected:
            yield f"{root.name}, {name}: {bench.rows().total()} rows, {bench.expected.total()} are right"


def main() -> None:
    root, layout = Path(sys.argv[1]), sys.argv[2]
    mistakes: list[str] = []
    with spark_session(root / "session") as spark:
        for batch, deltas in ((0, 10), (3, 2)):
            with put_back(spark):
                mistakes += mistakes_with_state(spark, root / f"batch-{batch}", layout, batch, deltas)
        mistakes += mistakes_in_files(spark, root / "files", layout)
    print(json.dumps({"pyspark": pyspark.__version__, "mistakes": mistakes}))


if __name__ == "__main__":
    main()
