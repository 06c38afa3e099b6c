"""Measured figures of each batch and task, from Spark's own event log.

The event log is the only place that has a state store's commit time per task (REST API and status store give sums).
Spark writes it from a queue of its own, off the batch's path; it is read here as it grows, and each rolled file is
deleted once read, so it never holds more than about two rolls (20 MB).

Figures of a subtask at a checkpoint, out of the batch whose end is the barrier:
  stateful subtask   sync = the task's state store commit; alignment = the stage's wait between the first and the last
                     output of the stages it reads from, plus the task's own wait for shuffle data
  source subtask     sync = writing the batch's offsets; records = rows it read
  sink subtask       sync = writing the batch's commit; records = rows written, where the sink counts them
Only what lies between the trigger and the barrier counts, for this is what the checkpoint waited for, and the rest of
that time is its start delay: so start delay, alignment, sync and async add up to how long the subtask took, as Flink's
do. A batch that had ended before the trigger made the checkpoint wait for nothing.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, assert_never

from checkpointing.messages import SubtaskMetrics, VertexKind

_COMMIT_TIME = "time to commit changes"
_OPERATOR = re.compile(r"\bopId = (\d+),")
_BATCHES_KEPT = 8
_STAGES_KEPT = 2000
_INTERESTING = (
    b'{"Event":"SparkListenerTaskEnd"',
    b'{"Event":"SparkListenerJobStart"',
    b'{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"',
    b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"',
)


@dataclass
class TaskFigures:
    """Of one stateful task. Durations in milliseconds, moments in epoch milliseconds, sizes in bytes."""

    commit_ms: int = 0
    fetch_wait_ms: int = 0
    rows: int = 0
    bytes_read: int = 0
    first_output_at: int = 0
    last_output_at: int = 0
    finished_at: int = 0

    @property
    def stage_wait_ms(self) -> int:
        """How long the stage waited for its last input since it had the first."""
        return self.last_output_at - self.first_output_at


@dataclass
class BatchFigures:
    """`tasks` by (operator, partition)."""

    batch_id: int
    started_at: int = 0
    duration_ms: int = 0
    input_rows: int = 0
    source_rows: tuple[int, ...] = ()
    output_rows: int = 0
    offsets_written_ms: int = 0
    commit_written_ms: int = 0
    watermark: str | None = None
    tasks: dict[tuple[int, int], TaskFigures] = field(default_factory=dict)


@dataclass
class _Stage:
    query_id: str
    batch_id: int
    parents: tuple[int, ...]
    finished: list[int] = field(default_factory=list)
    stateful: dict[tuple[int, int], TaskFigures] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """From the trigger to the barrier, in epoch milliseconds."""

    since: int
    until: int

    @property
    def duration_ms(self) -> int:
        return max(0, self.until - self.since)

    def share_of(self, began: int, ended: int) -> int:
        """How many milliseconds of the span between two moments lie in this wait."""
        return max(0, min(ended, self.until) - max(began, self.since))


def subtask_metrics(
    kind: VertexKind, index: int, subtask: int, batch: BatchFigures | None, wait: Wait | None
) -> SubtaskMetrics:
    """Of one subtask. `batch` None: none ran since the restore; `wait` None: it had ended before the trigger."""
    metrics = SubtaskMetrics()
    if batch is not None:
        metrics = _measured(kind, index, subtask, batch, wait or Wait(0, 0))
    waited = 0 if wait is None else wait.duration_ms
    return replace(metrics, start_delay=max(0, waited - metrics.alignment_duration - metrics.sync_duration))


def _measured(kind: VertexKind, index: int, subtask: int, batch: BatchFigures, wait: Wait) -> SubtaskMetrics:
    match kind:
        case VertexKind.SOURCE:
            rows = batch.source_rows[index] if index < len(batch.source_rows) else 0
            # One offsets file for all sources: it counts with the first, which owns it.
            written = 0 if index else wait.share_of(batch.started_at, batch.started_at + batch.offsets_written_ms)
            return SubtaskMetrics(sync_duration=written, processed_records=rows)
        case VertexKind.STATEFUL:
            task = batch.tasks.get((index, subtask), TaskFigures())
            commit_began = task.finished_at - task.commit_ms
            fetched = min(task.fetch_wait_ms, wait.share_of(task.last_output_at, commit_began))
            return SubtaskMetrics(
                alignment_duration=wait.share_of(task.first_output_at, task.last_output_at) + fetched,
                sync_duration=wait.share_of(commit_began, task.finished_at),
                processed_data=task.bytes_read,
                processed_records=task.rows,
            )
        case VertexKind.SINK:
            written = wait.share_of(wait.until - batch.commit_written_ms, wait.until)
            return SubtaskMetrics(sync_duration=written, processed_records=batch.output_rows)
    assert_never(kind)


class EventLog:
    """Reads the one application's log under `directory`. Not thread-safe: one thread polls and asks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: Path | None = None
        self._position = 0
        self._stages: OrderedDict[int, _Stage] = OrderedDict()
        self._operator_of_accumulator: OrderedDict[int, int] = OrderedDict()
        self._batches: OrderedDict[tuple[str, int], BatchFigures] = OrderedDict()

    def poll(self) -> None:
        """Take in what was written since the last call, and delete rolled files that are done with."""
        for line in self._new_lines():
            if line.startswith(_INTERESTING):
                self._take(json.loads(line))

    def batch(self, query_id: str, batch_id: int) -> BatchFigures | None:
        """The figures of a batch of the query that Spark knows as `query_id`; None while its last event is not read."""
        return self._batches.get((query_id, batch_id))

    def latest(self, query_id: str) -> BatchFigures | None:
        return next((figures for (query, _), figures in reversed(self._batches.items()) if query == query_id), None)

    # --- the files ---

    def _new_lines(self) -> Iterator[bytes]:
        while True:
            rolls = self._rolls()
            if self._file is None:
                self._file = rolls[0] if rolls else None
            if self._file is None:
                return
            newer = [roll for roll in rolls if _number(roll) > _number(self._file)]
            yield from self._rest_of(self._file)
            if not newer:
                return
            self._file.unlink(missing_ok=True)
            self._file, self._position = newer[0], 0

    def _rolls(self) -> list[Path]:
        return sorted(self._directory.glob("eventlog_v2_*/events_*"), key=_number)

    def _rest_of(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # half a line: the rest comes with the next flush
                self._position += len(line)
                yield line

    # --- the events ---

    def _take(self, event: dict[str, Any]) -> None:
        match event["Event"].rpartition(".")[2]:
            case "SparkListenerSQLExecutionStart":
                self._take_plan(event["sparkPlanInfo"])
            case "SparkListenerJobStart":
                self._take_job(event)
            case "SparkListenerTaskEnd":
                self._take_task(event)
            case "StreamingQueryListener$QueryProgressEvent":
                self._take_progress(event["progress"])

    def _take_plan(self, node: dict[str, Any]) -> None:
        operator = _OPERATOR.search(node["simpleString"])
        for metric in node["metrics"]:
            if operator is not None and metric["name"] == _COMMIT_TIME:
                self._operator_of_accumulator[metric["accumulatorId"]] = int(operator[1])
        while len(self._operator_of_accumulator) > _STAGES_KEPT:
            self._operator_of_accumulator.popitem(last=False)
        for child in node["children"]:
            self._take_plan(child)

    def _take_job(self, event: dict[str, Any]) -> None:
        properties = event.get("Properties") or {}
        batch = properties.get("streaming.sql.batchId")
        if batch is None:
            return
        query_id = properties.get("sql.streaming.queryId", "")
        for info in event["Stage Infos"]:  # a later job of the batch lists again the stages whose output it reuses
            self._stages.setdefault(info["Stage ID"], _Stage(query_id, int(batch), tuple(info["Parent IDs"])))
        while len(self._stages) > _STAGES_KEPT:
            self._stages.popitem(last=False)

    def _take_task(self, event: dict[str, Any]) -> None:
        stage = self._stages.get(event["Stage ID"])
        if stage is None or event["Task End Reason"]["Reason"] != "Success":
            return
        info = event["Task Info"]
        stage.finished.append(info["Finish Time"])
        commits: dict[int, int] = {}
        for each in info["Accumulables"]:
            operator = self._operator_of_accumulator.get(each["ID"])
            if operator is not None:
                commits[operator] = commits.get(operator, 0) + int(each["Update"])
        if commits:
            shuffle = (event.get("Task Metrics") or {}).get("Shuffle Read Metrics") or {}
            for operator, commit_ms in commits.items():
                stage.stateful[operator, info["Partition ID"]] = TaskFigures(
                    commit_ms=commit_ms,
                    fetch_wait_ms=shuffle.get("Fetch Wait Time", 0),
                    rows=shuffle.get("Total Records Read", 0),
                    bytes_read=shuffle.get("Remote Bytes Read", 0) + shuffle.get("Local Bytes Read", 0),
                    finished_at=info["Finish Time"],
                )

    def _take_progress(self, progress: dict[str, Any]) -> None:
        durations = progress.get("durationMs") or {}
        sources = progress.get("sources") or []
        figures = BatchFigures(
            batch_id=progress["batchId"],
            started_at=_epoch_ms(progress["timestamp"]),
            duration_ms=progress.get("batchDuration") or 0,
            input_rows=sum(source.get("numInputRows") or 0 for source in sources),
            source_rows=tuple(source.get("numInputRows") or 0 for source in sources),
            output_rows=max(0, (progress.get("sink") or {}).get("numOutputRows") or 0),  # -1: the sink does not count
            offsets_written_ms=durations.get("walCommit", 0),
            commit_written_ms=durations.get("commitOffsets", 0),
            watermark=(progress.get("eventTime") or {}).get("watermark"),
        )
        query_id = progress["id"]
        if "addBatch" not in durations and (query_id, figures.batch_id) in self._batches:
            return  # an idle trigger reports the batch before it again, without figures
        figures.tasks = self._tasks_of(query_id, figures.batch_id)
        self._batches[query_id, figures.batch_id] = figures
        while len(self._batches) > _BATCHES_KEPT * max(1, len({query for query, _ in self._batches})):
            self._batches.popitem(last=False)

    def _tasks_of(self, query_id: str, batch_id: int) -> dict[tuple[int, int], TaskFigures]:
        """The stateful tasks of the batch; a task that ran twice counts with its last run."""
        stages = [s for s in self._stages.values() if (s.query_id, s.batch_id) == (query_id, batch_id)]
        tasks: dict[tuple[int, int], TaskFigures] = {}
        for stage in stages:
            outputs = [at for parent in stage.parents if parent in self._stages for at in self._stages[parent].finished]
            first, last = (min(outputs), max(outputs)) if outputs else (0, 0)
            for key, figures in stage.stateful.items():
                tasks[key] = replace(figures, first_output_at=first, last_output_at=last)
        return tasks


def _epoch_ms(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _number(roll: Path) -> int:
    return int(roll.name.split("_")[1])
