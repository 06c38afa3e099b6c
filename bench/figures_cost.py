"""The cost of the per-subtask figures of a PySpark job for each batch, and whether it grows with earlier batches.

A real stateful query with 2 and with 200 partitions writes Spark's event log. The benchmark reads its lines as the
driver does, in a new driver and after 100,000 batches. It also measures the two checks of a checkpointLocation with 100
retained batches: one every tick (20 ms), one for each checkpoint. The goal is at most 20 ms or 1 % of the batch,
whichever is more.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.figures import Figure
from checkpointing.java import find_java
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.session import start_session
from checkpointing.spark.staging import QueryFiles, stage
from checkpointing.spark.task_metrics import EventLog

BATCHES = 10
ROUNDS = 3
BATCHES_BEFORE = 100_000
BATCHES_A_ROLL = 500
GOAL_MS, GOAL_SHARE = 20.0, 0.01
RETAINED = 100


@dataclass(frozen=True)
class Recorded:
    """The event log of one query: its lines for each batch, and the duration of a batch."""

    query_id: str
    batches: dict[int, list[bytes]]
    batch_ms: float


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        os.environ["JAVA_HOME"] = str(find_java(os.environ, root / "java").home)
        figures = []
        for partitions, recorded in _record(root).items():
            figures += _reading_figures(root, partitions, recorded)
        with_log, without = _compare(root)
        return [
            *figures,
            Figure("batch of 2 partitions with an event log", with_log, "ms"),
            Figure("batch without an event log", without, "ms"),
            *_boundary_figures(root),
        ]


# --- recording -------------------------------------------------------------------------------------------------------


def _record(root: Path) -> dict[int, Recorded]:
    recorded: dict[int, Recorded] = {}
    with _session(root / "recorded", event_log=True) as spark:
        for partitions in (2, 200):
            query_id, batch_ms = _run(spark, root / f"query-{partitions}", partitions)
            recorded[partitions] = Recorded(query_id, {}, batch_ms)
    lines = [line for file in sorted((root / "recorded/events").glob("*/events_*")) for line in file.open("rb")]
    for each in recorded.values():
        each.batches.update(_by_batch(lines, each.query_id))
    return recorded


def _compare(root: Path) -> tuple[float, float]:
    """Return median batch durations with and without an event log, measured alternately after a warm-up turn."""
    durations: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(ROUNDS + 1):
        for event_log in (True, False):
            name = f"{turn}-{event_log}"
            with _session(root / name, event_log=event_log) as spark:
                _, batch_ms = _run(spark, root / f"query-{name}", 2)
            durations[event_log].append(batch_ms)
    return statistics.median(durations[True][1:]), statistics.median(durations[False][1:])


@contextmanager
def _session(directory: Path, *, event_log: bool) -> Iterator[Any]:
    work = WorkDirectory(directory)
    settings = {**session_settings(work, 2, {}), "spark.eventLog.enabled": str(event_log).lower()}
    spark = start_session("figures", settings, work)
    try:
        yield spark
    finally:
        spark.stop()


def _run(spark: Any, root: Path, partitions: int) -> tuple[str, float]:
    """Return the query's id and the median duration of its batches in ms, without the first two batches."""
    (root / "in").mkdir(parents=True)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    for number in range(BATCHES):
        (root / "in" / f"{number}.txt").write_text("\n".join(f"word-{word}" for word in range(500)))
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(root / "in"))
    writer = lines.groupBy("value").count().writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(root / "location")).start()
    query.processAllAvailable()
    durations = [progress["batchDuration"] for progress in query.recentProgress if progress["numInputRows"]]
    query.stop()
    return str(query.id), statistics.median(durations[2:])


def _by_batch(lines: list[bytes], query_id: str) -> dict[int, list[bytes]]:
    """Split the lines by batch. A batch ends with its progress event, because only one query ran at a time."""
    found: dict[int, list[bytes]] = {}
    collected: list[bytes] = []
    for line in lines:
        collected.append(line)
        if b"QueryProgressEvent" in line[:120]:
            progress = json.loads(line)["progress"]
            if progress["id"] == query_id and progress["batchId"] not in found:
                found[progress["batchId"]] = collected
            collected = []
    return found


# --- reading ---------------------------------------------------------------------------------------------------------


def _reading_figures(root: Path, partitions: int, recorded: Recorded) -> list[Figure]:
    fresh = _Reader(root / f"log-{partitions}", recorded)
    per_batch = fresh.read_all()
    query_ms = fresh.query_ms
    old = _Reader(root / f"old-log-{partitions}", recorded)
    tracemalloc.start()
    old.process_old_batches(BATCHES_BEFORE // 10)
    early = tracemalloc.get_traced_memory()[0]
    old.process_old_batches(BATCHES_BEFORE - BATCHES_BEFORE // 10)
    grown = tracemalloc.get_traced_memory()[0] - early
    tracemalloc.stop()
    later = old.read_all()
    goal = max(GOAL_MS, GOAL_SHARE * recorded.batch_ms)
    size = sum(len(line) for line in recorded.batches[BATCHES - 1])
    case = f"{partitions} partitions"
    return [
        Figure("event log of a batch", size / 1024, "KiB", case=case),
        Figure("batch, median", recorded.batch_ms, "ms", case=case),
        Figure("reading a batch's log", per_batch, "ms", goal, case=case),
        Figure("figures of a checkpoint", per_batch + query_ms, "ms", goal, case=case),
        Figure(f"after {BATCHES_BEFORE:,} batches", later + old.query_ms, "ms", goal, case=case),
        Figure("memory growth", grown / 1024, "KiB", 256, case=case),
    ]


class _Reader:
    """A reader of an event log that grows with each batch. It measures the CPU time of its thread."""

    def __init__(self, directory: Path, recorded: Recorded) -> None:
        self._directory = directory / "eventlog_v2_x"
        self._directory.mkdir(parents=True)
        self._roll = 1
        self._file.touch()
        self._recorded = recorded
        self._log = EventLog(directory)
        self.query_ms = 0.0

    @property
    def _file(self) -> Path:
        return self._directory / f"events_{self._roll}_x"

    def read_all(self) -> float:
        """Return the median time to read a batch, in ms. Set `query_ms` to the median time to get its figures."""
        reading, querying = [], []
        for batch, lines in self._recorded.batches.items():
            self._write(lines)
            reading.append(_thread_ms(self._log.poll))
            querying.append(_thread_ms(lambda number=batch: self._log.batch(self._recorded.query_id, number)))  # type: ignore[misc]
        figures = self._log.batch(self._recorded.query_id, BATCHES - 1)
        assert figures is not None
        assert figures.tasks
        self.query_ms = statistics.median(querying)
        return statistics.median(reading)

    def process_old_batches(self, batches: int) -> None:
        """Read batches of another query, each with a job, a stage and a task, in several files as Spark rolls them."""
        for first in range(0, batches, BATCHES_A_ROLL):
            self._write([line for batch in range(first, first + BATCHES_A_ROLL) for line in _small_batch(batch)])
            self._log.poll()
            self._roll += 1
            self._file.touch()
        self._log.poll()

    def _write(self, lines: list[bytes]) -> None:
        with self._file.open("ab") as file:
            file.writelines(lines)


def _small_batch(batch: int) -> list[bytes]:
    stage = 1_000_000 + batch
    properties = {"sql.streaming.queryId": "old", "streaming.sql.batchId": str(batch)}
    events: list[dict[str, Any]] = [
        {
            "Event": "SparkListenerJobStart",
            "Stage Infos": [{"Stage ID": stage, "Parent IDs": []}],
            "Properties": properties,
        },
        {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Info": {"Accumulables": [{"ID": 1}] * 20}},
        {
            "Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
            "progress": {
                "id": "old",
                "batchId": batch,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "durationMs": {"addBatch": 1},
            },
        },
    ]
    return [json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events]


# --- the checkpointLocation ------------------------------------------------------------------------------------------


def _boundary_figures(root: Path) -> list[Figure]:
    figures = []
    for partitions in (2, 200):
        case = f"{partitions} partitions"
        files = _location(root / f"location-{partitions}", partitions)
        tick = _median_ms(lambda each=files: each.has_committed(RETAINED))  # type: ignore[misc]
        staged = _median_ms(_staging(files, root / f"staged-{partitions}"), times=5)
        figures += [
            Figure("look for the boundary", tick, "ms", 0.1, case=case),
            Figure("linking a checkpoint's files", staged, "ms", case=case),
        ]
    return figures


def _location(root: Path, partitions: int) -> QueryFiles:
    """Create the files of an aggregation with RocksDB, changelogs and format 1: a snapshot every ten batches."""
    plan = f"StateStoreSave [v#0], state info [ runId = x, opId = 0, ver = 0, numPartitions = {partitions}], Update\n"
    for batch in range(RETAINED):
        for name in (f"offsets/{batch}", f"commits/{batch}", f"sources/0/{batch}"):
            _touch(root / name)
        for partition in range(partitions):
            _touch(root / f"state/0/{partition}/{batch + 1}.{'snapshot' if batch % 10 == 9 else 'delta'}")
    _touch(root / f"offsets/{RETAINED}")  # the batch in progress
    _touch(root / "metadata")
    _touch(root / "state/0/_metadata/metadata")
    return QueryFiles(query_plan("words", f"{plan}StreamingRelation x, [v#0]", Sink("noop", None), {}), root, None)


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("v1")


def _staging(files: QueryFiles, directory: Path) -> Callable[[], object]:
    numbers = iter(range(100))
    plain = replace(files)
    return lambda: stage(plain, RETAINED - 2, directory / str(next(numbers)))


def _median_ms(call: Callable[[], object], times: int = 200) -> float:
    return statistics.median(_thread_ms(call) for _ in range(times))


def _thread_ms(call: Callable[[], object]) -> float:
    """Return the CPU time of this thread, which is not available for a batch at the same time."""
    began = time.thread_time()
    call()
    return (time.thread_time() - began) * 1000
