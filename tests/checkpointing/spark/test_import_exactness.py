"""A plain Spark query continues as a job from its checkpointLocation, in every layout of its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpointing.spark.restore import UNNAMED, Snapshot
from checkpointing.spark.running_query import RunningQuery
from checkpointing.spark.starting_state import SnapshotState, build_queries, for_queries
from tests.checkpointing.spark.bench import DRIVERS_LAYOUT, LAYOUTS, OTHER_LAYOUTS, RANGES, Bench
from tests.checkpointing.spark.test_imported import fingerprint, imported

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
EACH_LAYOUT = [
    "hdfs",  # plain Spark's default
    *(pytest.param(name, marks=pytest.mark.nightly) for name in [DRIVERS_LAYOUT, *OTHER_LAYOUTS] if name != "hdfs"),
]


def moved(bench: Bench, spark: Any, location: Path, writer: Any) -> RunningQuery:
    """Import `location`, and start the query of `writer` from it as a job with a driver's settings."""
    bench.layout = {"rocksdb.changelogCheckpointing.enabled": "true", **LAYOUTS[DRIVERS_LAYOUT]}
    checkpoint = imported({UNNAMED: str(location)}, str(bench.root / "savepoints"))
    planned = bench.planned(writer, bench.root / "managed" / "queries" / "0")
    snapshot = SnapshotState(
        "job",
        Snapshot(checkpoint),
        bench.root / "brought",
        allow_non_restored_state=False,
        keep_output=False,
        writers_are_gone=False,
        is_own=False,
    )
    build_queries(for_queries(snapshot, ["words"]), spark, bench.root / "managed", [planned], numbers=next(RANGES))
    query = RunningQuery(planned)
    query.start()
    return query


def plain(bench: Bench, location: Path, writer: Any) -> RunningQuery:
    query = RunningQuery(bench.planned(writer, location))
    query.start()
    return query


@pytest.mark.parametrize("layout", EACH_LAYOUT)
def test_counts_continue_where_plain_spark_ended(spark: Any, tmp_path: Path, layout: str) -> None:
    bench = Bench(spark, tmp_path, LAYOUTS[layout])
    seen: Counter[str] = Counter()

    def counting() -> Any:
        def write(frame: Any, batch: int) -> None:
            seen.update({row["value"]: row["count"] - seen[row["value"]] for row in frame.collect()})

        distinct = bench.lines().groupBy("value").count()
        return distinct.writeStream.outputMode("update").foreachBatch(write)

    before = plain(bench, tmp_path / "plain", counting())
    for _ in range(3):
        bench.feed()
    bench.run_all(before)
    before.stop()
    location = fingerprint(tmp_path / "plain")

    after = moved(bench, spark, tmp_path / "plain", counting())
    for _ in range(2):
        bench.feed()
    bench.run_all(after)
    assert seen == bench.expected
    assert after.spark_id == before.spark_id
    after.stop()
    assert fingerprint(tmp_path / "plain") == location


def test_a_batch_that_died_after_it_wrote_is_not_written_again(
    spark: Any, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """A sink that knows a batch number skips the batch, which must have the same rows as before."""
    bench = Bench(spark, tmp_path, LAYOUTS["hdfs"])
    batches: dict[int, list[str]] = {}

    def writing(*, dies_in: int | None = None) -> Any:
        def write(frame: Any, batch: int) -> None:
            if batch not in batches:
                batches[batch] = [row["value"] for row in frame.collect()]
            if batch == dies_in:
                raise ValueError("dies")

        return bench.lines().writeStream.foreachBatch(write)

    before = plain(bench, tmp_path / "plain", writing(dies_in=2))
    for _ in range(3):
        bench.feed()
    eventually("its death", lambda: before.failure(0))

    after = moved(bench, spark, tmp_path / "plain", writing())
    bench.feed()
    bench.run_all(after)
    after.stop()
    assert sorted(batches) == [0, 1, 2, 3]
    assert Counter(word for words in batches.values() for word in words) == bench.expected


@pytest.mark.nightly
def test_the_file_sink_of_spark_continues_in_its_directory(spark: Any, tmp_path: Path) -> None:
    """The sink's log is not in the checkpoint location, so it stays where it is."""
    bench, output = Bench(spark, tmp_path, LAYOUTS["hdfs"]), tmp_path / "out"

    def writing() -> Any:
        return bench.lines().writeStream.format("json").option("path", str(output))

    before = plain(bench, tmp_path / "plain", writing())
    for _ in range(3):
        bench.feed()
    bench.run_all(before)
    before.stop()

    after = moved(bench, spark, tmp_path / "plain", writing())
    for _ in range(12):  # the log is compacted meanwhile
        bench.feed()
    bench.run_all(after)
    after.stop()
    rows = spark.read.schema("value string").json(str(output)).collect()
    assert Counter(row["value"] for row in rows) == bench.expected
