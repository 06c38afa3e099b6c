"""Savepoints of a plain Spark query that runs meanwhile: each one continues after exactly its own batch."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.spark.restore import Snapshot
from checkpointing.spark.running_query import RunningQuery
from checkpointing.spark.spark_location import UNNAMED
from checkpointing.spark.starting_state import SnapshotState, build_queries, for_queries
from tests.checkpointing.spark.bench import DRIVERS_LAYOUT, LAYOUTS, RANGES, Bench
from tests.checkpointing.spark.test_import_exactness import EACH_LAYOUT, plain
from tests.checkpointing.spark.test_imported_while_running import saved_at
from tests.profile import PROFILE

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.long, pytest.mark.timeout(900)]
# Spark removes what only older batches need, and makes snapshots of state often.
HASTY = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.fileSource.log.compactInterval": "3",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "1ms",
}


class Counting:
    """A query that counts words. `seen` are its newest counts, and `after` those after each batch by its number."""

    def __init__(self, bench: Bench, seen: Counter[str]) -> None:
        self._bench = bench
        self.seen = seen
        self.after: dict[int, Counter[str]] = {}

    def writer(self) -> Any:
        def write(frame: Any, batch: int) -> None:
            self.seen.update({row["value"]: row["count"] - self.seen[row["value"]] for row in frame.collect()})
            self.after[batch] = self.seen.copy()

        counts = self._bench.lines().groupBy("value").count()
        return counts.writeStream.outputMode("update").foreachBatch(write)


def continued(bench: Bench, spark: Any, checkpoint: CompletedCheckpoint, writer: Any, work: Path) -> RunningQuery:
    """Start the query of `writer` from the savepoint as a job's driver does, with the driver's settings."""
    bench.layout = {"rocksdb.changelogCheckpointing.enabled": "true", **LAYOUTS[DRIVERS_LAYOUT]}
    planned = bench.planned(writer, work / "queries" / "0")
    state = SnapshotState(
        "job",
        Snapshot(checkpoint),
        work / "brought",
        allow_non_restored_state=False,
        keep_output=False,
        writers_are_gone=False,
        is_own=False,
    )
    build_queries(for_queries(state, ["words"]), spark, work, [planned], numbers=next(RANGES))
    query = RunningQuery(planned)
    query.start()
    return query


@pytest.mark.parametrize("layout", EACH_LAYOUT)
def test_each_savepoint_continues_after_its_batch(spark: Any, tmp_path: Path, layout: str) -> None:
    for key, value in HASTY.items():
        spark.conf.set(key, value)
    bench, root = Bench(spark, tmp_path, LAYOUTS[layout]), tmp_path
    counting = Counting(bench, Counter())
    query = plain(bench, root / "plain", counting.writer())
    bench.feed()
    bench.run_all(query)
    savepoints: dict[int, CompletedCheckpoint] = {}
    for number in itertools.count(1):
        bench.feed()
        if number % 3 == 0:  # so that batches run during most copies
            bench.run_all(query)
        checkpoint = saved_at(str(root / "plain"), query.spark_id, str(root / "savepoints"))
        savepoints[checkpoint.batches[UNNAMED]] = checkpoint
        if number >= 2 * PROFILE.snapshots_under_load and len(savepoints) >= 4:
            break
    bench.run_all(query)
    query.stop()
    assert not (root / "plain/commits/0").exists(), "Spark has removed nothing"

    numbers = sorted(savepoints)
    for batch in {numbers[0], numbers[-1]}:
        again = Counting(bench, counting.after[batch].copy())
        job = continued(bench, spark, savepoints[batch], again.writer(), root / f"job-{batch}")
        bench.run_all(job)
        job.stop()
        assert again.seen == bench.expected, f"the savepoint of batch {batch} of {numbers}"
        bench.feed()  # each job has a batch to run, and the next ones have more
