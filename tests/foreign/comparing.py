"""Compare what is stored about a query with what Spark itself has reported about it."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from monitoring.models import CheckpointStatus, Cluster, RunState
from tests.foreign.foreign_programs import Json, Query
from tests.foreign.watching import Stored, at_ms, milliseconds

NO_WATERMARK = "1970-01-01T00:00:00.000Z"
_SIZES = ("stateOnCurrentVersionSizeBytes", "rocksdbSstFileSize", "rocksdbTotalSSTFilesBytes")
_OF_OPERATORS = (
    *("operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark"),
    *("memoryUsedBytes", "commitTimeMs"),
)
# Figures of checkpoints that neither Spark's progress nor its files have.
_NOT_KNOWN = ("checkpointed_size", "processed_data", "persisted_data", "failed_at", "alignment_max", "sync_max")


def check_reported(query: Query, cluster: Cluster, program: str) -> None:
    """Check a query that only `cluster` sees, through the agent or the event logs."""
    stored = Stored(cluster, query.id)
    (run,) = stored.runs
    assert (stored.job.name, run.engine_job_id) == (f"{program}/{query.name}", query.run_id)
    assert at_ms(run.started_at) == milliseconds(query.started["timestamp"])
    batches, figures = stored.batches(), stored.progress(query.run_id)
    assert batches.keys() == figures.keys() == {each["batchId"] for each in query.progress}
    for spark in query.progress:
        row, begun_ms = batches[spark["batchId"]], milliseconds(spark["timestamp"])
        assert (at_ms(row.triggered_at), row.end_to_end_duration) == (begun_ms, spark["batchDuration"])
        assert at_ms(row.latest_ack_at) == begun_ms + spark["batchDuration"]
        assert row.state_size == state_size_of(spark)
        assert {getattr(row, column) for column in _NOT_KNOWN} == {None}
        check_progress(figures[spark["batchId"]], spark)
    assert stored.batches(CheckpointStatus.IN_PROGRESS) == {}
    assert run.position == position_of(query.progress[-1])
    counts = {name: run.counts[name] for name in ("completed", "failed", "in_progress", "restored")}
    assert counts == {"completed": len(batches), "failed": None, "in_progress": None, "restored": None}
    exception = query.ended["exception"]
    assert [each.stacktrace for each in stored.exceptions()] == ([] if exception is None else [exception[:20_000]])
    assert run.state == (RunState.FINISHED if exception is None else RunState.FAILED)


def state_size_of(spark: Json) -> int | None:
    """Return the sum of the sizes that the state stores report for the current version."""
    metrics = [each["customMetrics"] for each in spark["stateOperators"]]
    return sum(next(each[size] for size in _SIZES if size in each) for each in metrics) if metrics else None


def check_progress(ours: Json, spark: Json) -> None:
    """Check the stored progress of one batch."""
    assert (ours["numInputRows"], ours["durationMs"]) == (spark["numInputRows"], spark["durationMs"])
    assert ours["eventTime"] == spark.get("eventTime", {})
    for rate in ("inputRowsPerSecond", "processedRowsPerSecond"):
        # Spark 4.3 rounds what it shows to programs.
        assert ours[rate] == (pytest.approx(spark[rate], abs=0.051) if rate in spark else None)
    for mine, theirs in zip(ours["stateOperators"], spark["stateOperators"], strict=True):
        assert {name: mine[name] for name in _OF_OPERATORS} == {name: theirs[name] for name in _OF_OPERATORS}
        known = {name: value for name, value in theirs["customMetrics"].items() if value >= 0}  # -1: none yet
        assert mine["customMetrics"] == known
    for mine, theirs in zip(ours["sources"], spark["sources"], strict=True):
        assert (mine["description"], mine["numInputRows"]) == (theirs["description"], theirs["numInputRows"])
        assert json.loads(mine["endOffset"]) == theirs["endOffset"]
    rows = spark["sink"]["numOutputRows"]
    assert ours["sink"]["numOutputRows"] == (None if rows < 0 else rows)


def position_of(spark: Json) -> Json:
    """Return the position after this batch as Run.position has it."""
    watermark = spark.get("eventTime", {}).get("watermark", NO_WATERMARK)
    return {
        "batch": spark["batchId"],
        "watermark": None if watermark == NO_WATERMARK else datetime.fromisoformat(watermark).isoformat(),
        "sources": [json.dumps(each["endOffset"]) for each in spark["sources"]],
    }


def check_files(query: Query, cluster: Cluster, path: str) -> None:
    """Check a query that only `cluster` sees, through its checkpoint location. The rest is not known."""
    stored, progress = Stored(cluster, query.id), query.progress
    (run,) = stored.runs
    assert (stored.job.name, run.engine_job_id) == (path, query.id)
    batches = stored.batches()
    # Spark commits a batch before it reports it, so a stop may come between the two.
    assert {each["batchId"] for each in progress} <= batches.keys() <= {*range(len(progress) + 1)}
    for spark in progress:
        row, begun_ms = batches[spark["batchId"]], milliseconds(spark["timestamp"])
        ended_ms = begun_ms + spark["durationMs"]["triggerExecution"] + 5
        assert begun_ms <= at_ms(row.triggered_at) <= at_ms(row.latest_ack_at) <= ended_ms
        assert row.end_to_end_duration >= spark["durationMs"]["addBatch"] - 5
        assert {getattr(row, column) for column in _NOT_KNOWN} == {None}
    # Sizes are not known until the state has been measured. A query without state has no byte.
    sizes = {row.state_size for row in batches.values()}
    assert 0 not in sizes if progress[0]["stateOperators"] else sizes <= {None, 0}
    newest = max(batches)
    if newest == progress[-1]["batchId"]:
        sources = [json.dumps(json.loads(each)) for each in run.position["sources"]]
        assert {**run.position, "sources": sources} == position_of(progress[-1])
    assert (run.counts["completed"], run.counts["failed"]) == (newest + 1, None)
    # The files show the batch that failed, or that the stop interrupted, but no exception.
    assert stored.batches(CheckpointStatus.IN_PROGRESS).keys() <= {newest + 1}
    assert (stored.exceptions(), run.exception, run.exceptions) == ([], "", [])
