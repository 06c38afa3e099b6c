"""Measured figures of each batch and task, from Spark's own event log.

Only the event log has a state store's commit time per task (REST API and status store give sums). Spark writes it from
a separate queue, outside of the batch. This module reads it as it grows, and deletes each rolled file after reading it,
so it never holds more than about two rolls (20 MB).

The figures of a subtask at a checkpoint come from the batch at whose end the query was cut (the barrier):
  stateful subtask   sync = the task's state store commit; alignment = the stage's wait between the first and the last
      output of the stages it reads from, plus the task's own wait for shuffle data
  source subtask     sync = writing the batch's offsets; records = rows it read
  sink subtask       sync = writing the batch's commit; records = rows written, if the sink counts them
Only time between the trigger and the barrier counts, because the checkpoint waited for it. The rest of that time is the
start delay. So start delay, alignment, sync and async add up to the subtask's duration, as in Flink. For a batch that
had ended before the trigger, the checkpoint did not wait.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, assert_never

from checkpointing.model.messages import UNKNOWN, SubtaskMetrics, VertexKind
from checkpointing.spark.row_counts import RowCounts

_COMMIT_TIME = "time to commit changes"
_OPERATOR = re.compile(r"\bopId = (\d+),")
_BATCHES_KEPT = 8
_RAW_BATCHES_KEPT = 32
_RAW_BYTES_KEPT = 32 * 2**20
_PLANS_KEPT = 64
_STAGES_KEPT = 2000
_TASK_END = b'{"Event":"SparkListenerTaskEnd"'
_JOB_START = b'{"Event":"SparkListenerJobStart"'
_EXECUTION_START = b'{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"'
_PROGRESS = b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"'
_TASKS_STAGE = re.compile(re.escape(_TASK_END) + rb',"Stage ID":(\d+)')
_EXECUTION_ID = re.compile(re.escape(_EXECUTION_START) + rb',"executionId":(\d+)')
_STAGE_ID = re.compile(rb'"Stage ID":(\d+)')
_BATCH_ID = re.compile(rb'"streaming\.sql\.batchId":"(\d+)"')
_QUERY_ID = re.compile(rb'"sql\.streaming\.queryId":"([^"]+)"')
# The execution of the job, and the one around it: the executions of a foreachBatch function are nested in the batch.
_EXECUTIONS = re.compile(rb'"spark\.sql\.execution\.(?:root\.)?id":"(\d+)"')


@dataclass
class TaskFigures:
    """The figures of one stateful task. Durations in milliseconds, moments in epoch milliseconds, sizes in bytes."""

    commit_ms: int = 0
    fetch_wait_ms: int = 0
    rows: int = 0
    bytes_read: int = 0
    first_output_at: int = 0
    last_output_at: int = 0
    finished_at: int = 0


@dataclass
class BatchFigures:
    """The figures of a batch. `tasks` by (operator, partition). `is_measured` False: Spark reports no figures."""

    batch_id: int
    is_measured: bool = True
    started_at: int = 0
    duration_ms: int = 0
    input_rows: int = 0
    source_rows: tuple[int, ...] = ()
    output_rows: int = 0
    offsets_written_ms: int = 0
    commit_written_ms: int = 0
    watermark: str | None = None
    tasks: dict[tuple[int, int], TaskFigures] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """The time from the trigger to the barrier, in epoch milliseconds."""

    since: int
    until: int

    @property
    def duration_ms(self) -> int:
        return max(0, self.until - self.since)

    def share_of(self, began: int, ended: int) -> int:
        """Return how many milliseconds between two moments are within this wait."""
        return max(0, min(ended, self.until) - max(began, self.since))


def subtask_metrics(
    kind: VertexKind, index: int, subtask: int, batch: BatchFigures | None, wait: Wait | None
) -> SubtaskMetrics:
    """Return the metrics of one subtask. `batch` None: none ran since the restore.

    `wait` None: the batch had ended before the trigger.
    """
    metrics = SubtaskMetrics()
    if batch is not None and not batch.is_measured:
        metrics = SubtaskMetrics(alignment_duration=UNKNOWN, sync_duration=UNKNOWN)
    elif batch is not None:
        metrics = _measured(kind, index, subtask, batch, wait or Wait(0, 0))
    waited = 0 if wait is None else wait.duration_ms
    measured = max(0, metrics.alignment_duration) + max(0, metrics.sync_duration)
    return replace(metrics, start_delay=max(0, waited - measured))


def _measured(kind: VertexKind, index: int, subtask: int, batch: BatchFigures, wait: Wait) -> SubtaskMetrics:
    match kind:
        case VertexKind.SOURCE:
            rows = batch.source_rows[index] if index < len(batch.source_rows) else 0
            # All sources share one offsets file. Its time counts for the first source, which owns it.
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


@dataclass
class _RawBatch:
    """The unparsed events of a batch. They are parsed only if its figures are requested, which is rare."""

    plans: set[int] = field(default_factory=set)
    jobs: list[bytes] = field(default_factory=list)
    tasks: list[bytes] = field(default_factory=list)
    size: int = 0


_Key = tuple[str, int]


class EventLog:
    """Reads the log of the one application under `directory`. Not thread-safe: one thread polls and reads.

    For each line only the first bytes are checked. The stored data is bounded, independent of the number of batches.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: Path | None = None
        self._position = 0
        self._batch_of_stage: OrderedDict[int, _Key] = OrderedDict()
        self._plans: OrderedDict[int, bytes] = OrderedDict()
        self._raw: OrderedDict[_Key, _RawBatch] = OrderedDict()
        self._raw_size = 0
        self._batches: OrderedDict[_Key, BatchFigures] = OrderedDict()
        self._rows: dict[str, RowCounts] = defaultdict(RowCounts)

    def poll(self) -> None:
        """Read what was written since the last call, and delete rolled files that are completely read."""
        for line in self._new_lines():
            self._take(line)

    def batch(self, query_id: str, batch_id: int) -> BatchFigures | None:
        """Return the figures of a batch, or None while its last event is not read.

        `query_id` is Spark's ID of the query.
        """
        key = (query_id, batch_id)
        figures = self._batches.get(key)
        raw = self._raw.pop(key, None) if figures is not None else None
        if figures is not None and raw is not None:
            self._raw_size -= raw.size
            figures.tasks = _tasks(raw, [self._plans[plan] for plan in raw.plans if plan in self._plans])
        return figures

    def latest(self, query_id: str) -> BatchFigures | None:
        """Return the figures of the newest batch, without its tasks."""
        return next((figures for (query, _), figures in reversed(self._batches.items()) if query == query_id), None)

    def rows(self, query_id: str) -> RowCounts:
        """Return the row counts of all batches so far."""
        return self._rows[query_id]

    # --- the files ---

    def _new_lines(self) -> Iterator[bytes]:
        while True:
            if self._file is None:
                self._file = min(self._rolls(), key=_number, default=None)
            if self._file is None:
                return
            newer = self._next_roll(self._file)
            yield from self._rest_of(self._file)
            if newer is None:
                return
            self._file.unlink(missing_ok=True)
            self._file, self._position = newer, 0

    def _rolls(self) -> list[Path]:
        return list(self._directory.glob("eventlog_v2_*/events_*"))

    def _next_roll(self, file: Path) -> Path | None:
        """Return the next roll, or None.

        Rolls are numbered without gaps, so checking one name is cheaper than a listing.
        """
        following = file.with_name(re.sub(r"\d+", str(_number(file) + 1), file.name, count=1))
        return following if following.exists() else None

    def _rest_of(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # half a line; the rest follows with the next flush
                self._position += len(line)
                yield line

    # --- the events ---

    def _take(self, line: bytes) -> None:
        if line.startswith(_TASK_END):
            self._take_task(line)
        elif line.startswith(_JOB_START):
            self._take_job(line)
        elif line.startswith(_EXECUTION_START):
            self._take_plan(line)
        elif line.startswith(_PROGRESS):
            self._take_progress(json.loads(line)["progress"])

    def _take_plan(self, line: bytes) -> None:
        execution = _EXECUTION_ID.match(line)
        if execution is not None and _COMMIT_TIME.encode() in line:
            self._plans[int(execution[1])] = line
            if len(self._plans) > _PLANS_KEPT:
                self._plans.popitem(last=False)

    def _take_job(self, line: bytes) -> None:
        batch, query = _BATCH_ID.search(line), _QUERY_ID.search(line)
        if batch is None or query is None:
            return
        key = (query[1].decode(), int(batch[1]))
        raw = self._raw.setdefault(key, _RawBatch())
        raw.plans.update(int(execution) for execution in _EXECUTIONS.findall(line))
        raw.jobs.append(line)
        self._grow(raw, len(line))
        for stage in _STAGE_ID.findall(line):  # a later job of the batch lists again the stages whose output it reuses
            self._batch_of_stage[int(stage)] = key
        while len(self._batch_of_stage) > _STAGES_KEPT:
            self._batch_of_stage.popitem(last=False)

    def _take_task(self, line: bytes) -> None:
        stage = _TASKS_STAGE.match(line)
        raw = self._raw.get(self._batch_of_stage.get(int(stage[1]), ("", -1))) if stage is not None else None
        if raw is not None:
            raw.tasks.append(line)
            self._grow(raw, len(line))

    def _grow(self, raw: _RawBatch, size: int) -> None:
        """Count the stored bytes, and remove the oldest batches: checkpoints request the figures of the last ones."""
        raw.size += size
        self._raw_size += size
        while len(self._raw) > 1 and (self._raw_size > _RAW_BYTES_KEPT or len(self._raw) > _RAW_BATCHES_KEPT):
            self._raw_size -= self._raw.popitem(last=False)[1].size

    def _take_progress(self, progress: dict[str, Any]) -> None:
        durations = progress.get("durationMs") or {}
        sources = progress.get("sources") or []
        key = (progress["id"], progress["batchId"])
        if "addBatch" not in durations and key in self._batches:
            return  # an idle trigger reports the previous batch again, without figures
        if "addBatch" in durations:
            self._rows[progress["id"]].add(progress)
        self._batches[key] = BatchFigures(
            batch_id=progress["batchId"],
            started_at=_epoch_ms(progress["timestamp"]),
            duration_ms=progress.get("batchDuration") or 0,
            input_rows=sum(source.get("numInputRows") or 0 for source in sources),
            source_rows=tuple(source.get("numInputRows") or 0 for source in sources),
            # -1: the sink does not count its rows.
            output_rows=max(0, (progress.get("sink") or {}).get("numOutputRows") or 0),
            offsets_written_ms=durations.get("walCommit", 0),
            commit_written_ms=durations.get("commitOffsets", 0),
            watermark=(progress.get("eventTime") or {}).get("watermark"),
        )
        while len(self._batches) > _BATCHES_KEPT * max(1, len({query for query, _ in self._batches})):
            self._batches.popitem(last=False)


# --- one batch's tasks ------------------------------------------------------------------------------------------------


def _tasks(raw: _RawBatch, plans: list[bytes]) -> dict[tuple[int, int], TaskFigures]:
    """Return the stateful tasks of the batch. If a task ran twice, its last run counts."""
    operators: dict[int, int] = {}
    for line in plans:
        _find_commit_metrics(json.loads(line)["sparkPlanInfo"], operators)
    parents = {info["Stage ID"]: info["Parent IDs"] for line in raw.jobs for info in json.loads(line)["Stage Infos"]}
    finished: dict[int, list[int]] = defaultdict(list)
    stateful: dict[tuple[int, int], tuple[int, TaskFigures]] = {}
    for line in raw.tasks:
        event = json.loads(line)
        if event["Task End Reason"]["Reason"] != "Success":
            continue
        stage, info = event["Stage ID"], event["Task Info"]
        finished[stage].append(info["Finish Time"])
        for operator, commit_ms in _commit_times(info["Accumulables"], operators).items():
            stateful[operator, info["Partition ID"]] = stage, _task_figures(event, commit_ms)
    tasks = {}
    for key, (stage, figures) in stateful.items():
        outputs = [at for parent in parents[stage] for at in finished[parent]]
        first, last = (min(outputs), max(outputs)) if outputs else (0, 0)
        tasks[key] = replace(figures, first_output_at=first, last_output_at=last)
    return tasks


def _find_commit_metrics(node: dict[str, Any], operators: dict[int, int]) -> None:
    """Add to `operators` the stateful operator of each accumulator that holds a commit's time."""
    operator = _OPERATOR.search(node["simpleString"])
    for metric in node["metrics"]:
        if operator is not None and metric["name"] == _COMMIT_TIME:
            operators[metric["accumulatorId"]] = int(operator[1])
    for child in node["children"]:
        _find_commit_metrics(child, operators)


def _commit_times(accumulables: list[dict[str, Any]], operators: dict[int, int]) -> dict[int, int]:
    commits: dict[int, int] = {}
    for each in accumulables:
        operator = operators.get(each["ID"])
        if operator is not None:
            commits[operator] = commits.get(operator, 0) + int(each["Update"])
    return commits


def _task_figures(event: dict[str, Any], commit_ms: int) -> TaskFigures:
    shuffle = (event.get("Task Metrics") or {}).get("Shuffle Read Metrics") or {}
    return TaskFigures(
        commit_ms=commit_ms,
        fetch_wait_ms=shuffle.get("Fetch Wait Time", 0),
        rows=shuffle.get("Total Records Read", 0),
        bytes_read=shuffle.get("Remote Bytes Read", 0) + shuffle.get("Local Bytes Read", 0),
        finished_at=event["Task Info"]["Finish Time"],
    )


def _epoch_ms(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _number(roll: Path) -> int:
    return int(roll.name.split("_")[1])
