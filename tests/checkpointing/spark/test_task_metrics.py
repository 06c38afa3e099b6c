"""Metrics from Spark's event log, with events of PySpark 4.3 (reduced to the fields that are read)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.messages import UNKNOWN, SubtaskMetrics, VertexKind
from checkpointing.spark import task_metrics
from checkpointing.spark.task_metrics import BatchFigures, EventLog, TaskFigures, Wait, subtask_metrics

QUERY = "5d35b4f1-f21b-4851-814a-6a833e52a359"
COMMIT_METRIC = 1117


class Log:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "eventlog_v2_local-1"
        self.directory.mkdir()
        self.roll = 1
        self.log = EventLog(root)

    @property
    def file(self) -> Path:
        return self.directory / f"events_{self.roll}_local-1"

    def write(self, *events: dict[str, Any]) -> None:
        with self.file.open("a") as file:
            for event in events:
                file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def batch(self, batch: int) -> BatchFigures | None:
        self.log.poll()
        return self.log.batch(QUERY, batch)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def plan(operator: int = 0, accumulator: int = COMMIT_METRIC, execution: int = 5) -> dict[str, Any]:
    save = {
        "nodeName": "StateStoreSave",
        "simpleString": f"StateStoreSave [value#2], state info [ checkpoint = c, opId = {operator}, ver = 3], Update",
        "metrics": [{"name": "time to commit changes", "accumulatorId": accumulator, "metricType": "timing"}],
        "children": [],
    }
    root = {"nodeName": "Write", "simpleString": "Write", "metrics": [], "children": [save]}
    event = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
    return {"Event": event, "executionId": execution, "rootExecutionId": execution, "sparkPlanInfo": root}


def job(batch: int, stages: dict[int, list[int]], execution: int = 5, root: int = 5) -> dict[str, Any]:
    return {
        "Event": "SparkListenerJobStart",
        "Stage Infos": [{"Stage ID": stage, "Parent IDs": parents} for stage, parents in stages.items()],
        "Properties": {
            "spark.sql.execution.id": str(execution),
            "spark.sql.execution.root.id": str(root),
            "sql.streaming.queryId": QUERY,
            "streaming.sql.batchId": str(batch),
        },
    }


def task(stage: int, partition: int, finish: int, commit_ms: int | None = None, **more: Any) -> dict[str, Any]:
    accumulables = [{"ID": 1103, "Name": "duration", "Update": "79"}]
    if commit_ms is not None:
        accumulables.append({"ID": COMMIT_METRIC, "Name": "time to commit changes", "Update": str(commit_ms)})
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": stage,
        "Task End Reason": {"Reason": more.get("reason", "Success")},
        "Task Info": {"Partition ID": partition, "Finish Time": finish, "Accumulables": accumulables},
        "Task Metrics": {
            "Shuffle Read Metrics": {
                "Fetch Wait Time": more.get("fetch_wait", 0),
                "Remote Bytes Read": 100,
                "Local Bytes Read": 23,
                "Total Records Read": 7,
            }
        },
    }


def progress(batch: int, **durations: int) -> dict[str, Any]:
    return {
        "Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
        "progress": {
            "id": QUERY,
            "batchId": batch,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchDuration": 500,
            "durationMs": durations,
            "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"},
            "sources": [{"numInputRows": 5}, {"numInputRows": 6}],
            "sink": {"numOutputRows": -1},
        },
    }


def test_a_task_waits_for_the_last_of_its_inputs_and_for_its_shuffle_data(log: Log) -> None:
    log.write(plan(), job(3, {6: [], 7: [6]}))
    log.write(task(6, 0, 1000), task(6, 1, 1111))
    log.write(task(7, 0, 1200, commit_ms=63), task(7, 1, 1300, commit_ms=40, fetch_wait=9))
    log.write(progress(3, addBatch=400, walCommit=20, commitOffsets=30))
    figures = log.batch(3)
    assert figures is not None
    assert figures.tasks == {
        (0, 0): TaskFigures(63, 0, 7, 123, first_output_at=1000, last_output_at=1111, finished_at=1200),
        (0, 1): TaskFigures(40, 9, 7, 123, first_output_at=1000, last_output_at=1111, finished_at=1300),
    }
    assert (figures.offsets_written_ms, figures.commit_written_ms, figures.source_rows) == (20, 30, (5, 6))
    assert figures.output_rows == 0, "-1 says that the sink does not count"


def test_figures_are_not_known_before_the_batch_is_reported(log: Log) -> None:
    log.write(plan(), job(3, {6: [], 7: [6]}), task(7, 0, 1200, commit_ms=63))
    assert log.batch(3) is None


def test_a_later_job_of_the_batch_reuses_the_stages_of_the_first(log: Log) -> None:
    """A sink that reads one partition after the other runs a Spark job for each partition."""
    log.write(plan(), job(0, {0: [], 1: [0]}), task(0, 0, 100), task(0, 1, 150), task(1, 0, 200, commit_ms=1))
    log.write(job(0, {0: [], 2: [0]}), task(2, 1, 300, commit_ms=2), progress(0, addBatch=1))
    figures = log.batch(0)
    assert figures is not None
    assert {key: (t.commit_ms, t.first_output_at, t.last_output_at) for key, t in figures.tasks.items()} == {
        (0, 0): (1, 100, 150),
        (0, 1): (2, 100, 150),
    }


def test_a_task_that_failed_does_not_count(log: Log) -> None:
    log.write(plan(), job(0, {0: []}), task(0, 0, 9, commit_ms=99, reason="ExceptionFailure"))
    log.write(task(0, 0, 20, commit_ms=5), progress(0, addBatch=1))
    figures = log.batch(0)
    assert figures is not None
    assert figures.tasks[0, 0].commit_ms == 5


def test_an_idle_trigger_does_not_overwrite_the_batch_before_it(log: Log) -> None:
    log.write(progress(3, addBatch=400, walCommit=20), progress(3, latestOffset=2))
    figures = log.batch(3)
    assert figures is not None
    assert figures.offsets_written_ms == 20


def test_half_a_line_is_left_for_the_next_time(log: Log) -> None:
    line = json.dumps(progress(0, addBatch=1), separators=(",", ":"))
    log.file.write_text(line[:50])
    assert log.batch(0) is None
    log.file.write_text(line + "\n")
    assert log.batch(0) is not None


def test_a_rolled_file_is_read_to_its_end_and_deleted(log: Log) -> None:
    log.write(progress(0, addBatch=1))
    assert log.batch(0) is not None
    log.write(progress(1, addBatch=1))
    rolled = log.file
    for log.roll in range(2, 11):
        log.write(progress(log.roll, addBatch=1))
    assert all(log.batch(n) is not None for n in range(3, 11))
    assert not rolled.exists()
    assert [path.name for path in log.directory.iterdir()] == ["events_10_local-1"]


def test_spark_jobs_of_a_batch_function_belong_to_its_batch(log: Log) -> None:
    """Spark jobs of a foreachBatch function have separate executions, nested in the batch's execution."""
    log.write(plan(execution=5), job(0, {0: [], 1: [0]}, execution=6, root=5))
    log.write(task(0, 0, 100), task(1, 0, 200, commit_ms=3), progress(0, addBatch=1))
    figures = log.batch(0)
    assert figures is not None
    assert figures.tasks[0, 0].commit_ms == 3


def test_figures_are_kept_once_they_were_requested(log: Log) -> None:
    log.write(plan(), job(0, {0: []}), task(0, 0, 20, commit_ms=5), progress(0, addBatch=1))
    first = log.batch(0)
    assert first is not None
    assert first.tasks
    assert log.batch(0) == first


def test_memory_is_bounded(log: Log) -> None:
    for batch in range(200):
        log.write(plan(accumulator=batch, execution=batch), job(batch, {batch: []}, batch, batch))
        log.write(task(batch, 0, 20, commit_ms=5), progress(batch, addBatch=1))
    assert log.batch(199) is not None
    kept = log.log
    assert (len(kept._batches), len(kept._raw), len(kept._plans)) == (8, 31, 64)
    assert kept._raw_size == sum(raw.size for raw in kept._raw.values())


def test_a_batch_of_very_many_tasks_is_kept_and_those_before_it_make_room(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_metrics, "_RAW_BYTES_KEPT", 4000)
    log.write(plan(), job(0, {0: []}), task(0, 0, 20, commit_ms=5), progress(0, addBatch=1))
    log.write(job(1, {1: []}), *(task(1, n, 20, commit_ms=5) for n in range(30)), progress(1, addBatch=1))
    [small, large] = log.batch(0), log.batch(1)
    assert small is not None
    assert large is not None
    assert (len(small.tasks), len(large.tasks)) == (0, 30)


def test_other_jobs_are_left_out(log: Log) -> None:
    event = job(0, {0: []})
    event["Properties"] = {}
    log.write(event, task(0, 0, 10, commit_ms=5), progress(0, addBatch=1))
    figures = log.batch(0)
    assert figures is not None
    assert figures.tasks == {}


def test_without_a_batch_nothing_was_measured() -> None:
    assert subtask_metrics(VertexKind.STATEFUL, 0, 0, None, None) == SubtaskMetrics()


def test_unreported_batch_figures_are_unknown_and_the_wait_is_start_delay() -> None:
    metrics = subtask_metrics(VertexKind.SOURCE, 0, 0, BatchFigures(3, is_measured=False), Wait(1000, 1400))
    assert metrics == SubtaskMetrics(start_delay=400, alignment_duration=UNKNOWN, sync_duration=UNKNOWN)


BATCH = BatchFigures(
    3,
    started_at=900,
    source_rows=(5,),
    output_rows=6,
    offsets_written_ms=20,
    commit_written_ms=30,
    tasks={(0, 0): TaskFigures(60, 9, 7, 123, first_output_at=1000, last_output_at=1100, finished_at=1300)},
)


@pytest.mark.parametrize(
    ("triggered", "start_delay", "alignment", "sync"),
    [
        (900, 500 - 109 - 60, 109, 60),
        (1040, 360 - 69 - 60, 69, 60),
        (1200, 200 - 9 - 60, 9, 60),
        (1270, 100, 0, 30),
        (1350, 50, 0, 0),
    ],
    ids=["before the batch", "while it aligned", "after that", "while the state was committed", "at its end"],
)
def test_only_tasks_after_the_trigger_belong_to_the_checkpoint(
    triggered: int, start_delay: int, alignment: int, sync: int
) -> None:
    metrics = subtask_metrics(VertexKind.STATEFUL, 0, 0, BATCH, Wait(triggered, 1400))
    assert (metrics.start_delay, metrics.alignment_duration, metrics.sync_duration) == (start_delay, alignment, sync)
    assert metrics.start_delay + metrics.alignment_duration + metrics.sync_duration == 1400 - triggered
    assert metrics.processed_records == 7


def test_a_batch_that_had_ended_did_not_delay_the_checkpoint() -> None:
    metrics = subtask_metrics(VertexKind.STATEFUL, 0, 0, BATCH, None)
    assert (metrics.start_delay, metrics.alignment_duration, metrics.sync_duration) == (0, 0, 0)
    assert metrics.processed_records == 7


def test_source_and_sink_count_the_logs_that_were_written_after_the_trigger() -> None:
    source = subtask_metrics(VertexKind.SOURCE, 0, 0, BATCH, Wait(910, 1400))
    sink = subtask_metrics(VertexKind.SINK, 0, 0, BATCH, Wait(1390, 1400))
    assert (source.sync_duration, source.start_delay, source.processed_records) == (10, 480, 5)
    assert (sink.sync_duration, sink.start_delay, sink.processed_records) == (10, 0, 6)
