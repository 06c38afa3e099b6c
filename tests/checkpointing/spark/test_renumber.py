"""Restored checkpointLocations with greater batch numbers, with real Spark, in every layout of the state store."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.layout import committed_batches
from checkpointing.jobs.launching.python import in_own_python
from checkpointing.spark.renumber import GREATEST, renumber
from checkpointing.spark.restore import Snapshot, restore_query
from tests.checkpointing.spark.bench import DRIVERS_LAYOUT, LAYOUTS, OTHER_LAYOUTS, STATE, Bench
from tests.checkpointing.spark.conftest import ROOT
from tests.checkpointing.spark.renumbering import BATCHES, CHANGELOG, IdempotentSink, counting, restored, run
from tests.pyspark_environments import python_with_pyspark_or_skip

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

DELTAS = [
    pytest.param(2, id="from a whole state", marks=pytest.mark.nightly),
    pytest.param(10, id="from changes only"),
]
NO_SPARK: Any = None


@pytest.fixture(params=[DRIVERS_LAYOUT, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHER_LAYOUTS)])
def bench(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path, {**CHANGELOG, **LAYOUTS[request.param]})


@pytest.mark.parametrize("deltas", DELTAS)
@pytest.mark.parametrize("batch", [*(pytest.param(batch, marks=pytest.mark.nightly) for batch in (0, 2)), 3])
def test_a_sink_that_uses_batch_numbers_loses_nothing(batch: int, deltas: int, bench: Bench) -> None:
    bench.spark.conf.set(f"{STATE}minDeltasForSnapshot", str(deltas))
    sink = IdempotentSink()
    again = restored(bench, sink, batch, 1000)
    run(bench, again, 3)
    assert sink.skipped == 0
    assert sink.counts == bench.expected
    assert min(number for number in sink.batches if number >= BATCHES) == 1001

    run(bench, counting(bench, sink, "again"), 1)  # a renumbered query's location is like any other
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


@pytest.mark.nightly
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", ["4.2.1", "4.1.4", "4.0.5"])
def test_restores_lose_nothing_under_an_older_pyspark(
    version: str, layout: str, tmp_path: Path, java_home: Path
) -> None:
    """Restore a count, and a query with Spark's file sink."""
    python = str(python_with_pyspark_or_skip(version))
    command = [python, "-m", "tests.checkpointing.spark.renumbering", str(tmp_path / "restores"), layout]
    environment = in_own_python(os.environ, python, tmp_path / "own")
    environment.pop("SPARK_SUBMIT_OPTS", None)  # it names an archive of another Spark version's classes
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"pyspark": version, "mistakes": []}


@pytest.mark.parametrize("to", [2, 1, GREATEST])
def test_a_number_that_is_not_ahead_or_too_great_is_refused(to: int, tmp_path: Path) -> None:
    """Spark uses 32-bit batch numbers when it removes old batches."""
    with pytest.raises(ValueError, match=f"batch 2 cannot become batch {to}"):
        renumber(NO_SPARK, tmp_path, 2, to)
