"""A restored state with another number of partitions, with real Spark: no row is lost or doubled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import VertexKind
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.rescale import (
    RescaleRefused,
    requests_partitions,
    rescale,
    target_partitions,
)
from checkpointing.spark.running_query import RunningQuery
from tests.checkpointing.spark.bench import LAYOUTS, Bench, write_input
from tests.checkpointing.spark.test_plan import AGGREGATE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Rescaling(Bench):
    """A query that is stopped, restored to a new location with other partitions, and continued."""

    def on(self, partitions: int) -> None:
        self.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))

    def first(self, writer: Any, partitions: int, batches: int) -> RunningQuery:
        self.on(partitions)
        query = RunningQuery(self.planned(writer, self.root / "first"))
        query.start()
        for _ in range(batches):
            self.feed()
        self.run_all(query)
        return query

    def again(self, checkpoint: CompletedCheckpoint, writer: Any, name: str, partitions: int) -> RunningQuery:
        """Restore and rescale the query as a driver does, start it, and return it."""
        self.on(partitions)
        query = RunningQuery(self.planned(writer, self.root / name))
        self.restore(checkpoint, query.planned)
        query.start()
        return query

    def taken_and_stopped(self, query: RunningQuery, number: int) -> CompletedCheckpoint:
        checkpoint = self.snapshot(query, number)
        query.stop()
        return checkpoint


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Rescaling:
    return Rescaling(spark, tmp_path, LAYOUTS["rocksdb format 2"])


def parallelism(checkpoint: CompletedCheckpoint) -> list[int]:
    return [operator.parallelism for operator in checkpoint.operators if operator.kind is VertexKind.STATEFUL]


def has_state(checkpoint: CompletedCheckpoint) -> bool:
    stateful = [operator for operator in checkpoint.operators if operator.kind is VertexKind.STATEFUL]
    return all(subtask.files for operator in stateful for subtask in operator.subtasks)


@pytest.mark.parametrize(
    ("layout", "steps"),
    [("rocksdb format 2", (8, 3, 3)), pytest.param("rocksdb format 1", (3,), marks=pytest.mark.nightly)],
)
def test_a_count_is_rescaled_from_4_to_8_to_3_partitions_and_its_snapshots_restored(
    bench: Rescaling, layout: str, steps: tuple[int, ...]
) -> None:
    bench.layout = {"rocksdb.changelogCheckpointing.enabled": "true", **LAYOUTS[layout]}
    counts: dict[str, int] = {}

    def counting() -> Any:
        def collect(frame: Any, batch: int) -> None:
            counts.update({row["value"]: row["count"] for row in frame.collect()})

        return bench.lines().groupBy("value").count().writeStream.outputMode("update").foreachBatch(collect)

    checkpoint = bench.taken_and_stopped(bench.first(counting(), 4, 2), 1)
    assert parallelism(checkpoint) == [4]
    for number, partitions in enumerate(steps, 2):
        before = dict(counts)
        query = bench.again(checkpoint, counting(), f"on-{number}", partitions)
        bench.feed()
        bench.run_all(query)
        assert counts == bench.expected
        assert counts != before
        checkpoint = bench.taken_and_stopped(query, number)
        assert parallelism(checkpoint) == [partitions]
        assert has_state(checkpoint)


@pytest.mark.nightly
@pytest.mark.parametrize("batches", [1, 2], ids=["between two compactions", "right before a compaction"])
def test_a_file_sinks_log_has_no_hole_at_the_batch_that_the_rescale_writes(bench: Rescaling, batches: int) -> None:
    bench.spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    output = bench.root / "out"

    def distinct() -> Any:
        return bench.lines().dropDuplicates(["value"]).writeStream.format("json").option("path", str(output))

    checkpoint = bench.taken_and_stopped(bench.first(distinct(), 2, batches), 1)
    query = bench.again(checkpoint, distinct(), "again", 3)
    for _ in range(5):  # until after two more compactions
        bench.feed()
    bench.run_all(query)
    after = bench.taken_and_stopped(query, 2)
    assert parallelism(after) == [3]
    assert len(list((output / "_spark_metadata").glob("*.compact"))) >= 2
    rows = bench.spark.read.json(str(output)).collect()
    assert Counter(row["value"] for row in rows) == Counter(set(bench.expected))


@pytest.mark.nightly
def test_a_joins_four_stores_are_rescaled_together(bench: Rescaling) -> None:
    from pyspark.sql import functions

    pairs: list[str] = []
    for side in ("left", "right"):
        (bench.root / side).mkdir()

    def joined() -> Any:
        def side(name: str) -> Any:
            lines = bench.spark.readStream.format("text").load(str(bench.root / name))
            return lines.withColumn("at", functions.lit("2026-01-01").cast("timestamp")).withWatermark("at", "1 hour")

        on = functions.expr("l.value = r.value AND l.at = r.at")
        frame = side("left").alias("l").join(side("right").alias("r"), on).select("l.value")
        return frame.writeStream.foreachBatch(lambda f, _: pairs.extend(row["value"] for row in f.collect()))

    write_input(bench.root / "left" / "1.txt", "abcdefgh")
    checkpoint = bench.taken_and_stopped(bench.first(joined(), 2, 0), 1)
    query = bench.again(checkpoint, joined(), "again", 5)
    write_input(bench.root / "right" / "1.txt", "abxdefgh")
    bench.run_all(query)
    assert parallelism(bench.taken_and_stopped(query, 2)) == [5]
    assert sorted(pairs) == list("abdefgh")


def test_a_state_without_a_schema_is_refused_with_sparks_message(bench: Rescaling) -> None:
    counted = bench.lines().groupBy("value").count().writeStream.outputMode("update").format("noop")
    query = bench.first(counted, 2, 1)
    query.stop()
    for schema in query.planned.location.glob("state/0/0/_metadata/*"):
        schema.unlink()
    with pytest.raises(RescaleRefused, match=r"Spark says: \[STDS_FAILED_TO_READ_STATE_SCHEMA\]"):
        rescale(bench.spark, query.files, 3)


# --- requested numbers -----------------------------------------------------------------------------------------------


def test_the_partitions_are_set_by_the_parallelism_or_by_spark() -> None:
    assert requests_partitions(3, {})
    assert requests_partitions(None, {"spark.sql.shuffle.partitions": "3"})
    assert not requests_partitions(None, {"spark.master": "local[2]"})


def test_only_a_keyed_operator_with_another_number_of_partitions_is_rescaled() -> None:
    console = Sink("console", None)
    keyed = query_plan("q", AGGREGATE, console, {})
    assert target_partitions(keyed, {0: 7}) == 2
    assert target_partitions(keyed, {0: 2}) is None
    assert target_partitions(keyed, {}) is None
    whole = query_plan("q", AGGREGATE.replace("hashpartitioning(value#0, 2)", "SinglePartition"), console, {0: 7})
    assert [vertex.parallelism for vertex in whole.vertices] == [1, 1, 1]
    assert target_partitions(whole, {0: 7}) is None
