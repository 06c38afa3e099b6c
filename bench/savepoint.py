"""A savepoint of 1 GB of RocksDB state, compared with `cp -r` of the same files.

A real query builds the state (1 KiB per key), then processes small batches while the driver's code takes savepoints.
`cp -r` copies the files of the savepoint. Copies are on the same disk without links, as between two file systems. If
both sides write through to the disk, the names of both figures mention it. The benchmark checks the free space before
it begins, and fails if it uses more than its limit.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from unittest import mock

from bench.figures import BenchmarkFailed, Figure
from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.checkpoint_location.layout import IncompleteBatch
from checkpointing.ids import new_id
from checkpointing.java import find_java
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, SubtaskMetrics, TriggerCheckpoint
from checkpointing.spark.plan import explain, query_plan, sink_of, writer_options
from checkpointing.spark.session import start_session
from checkpointing.spark.snapshot import DurableSubtask, PoolLedger, SnapshotWriter
from checkpointing.spark.staging import QueryFiles, StagedBatch, stage
from checkpointing.spark.uploads import NICENESS
from checkpointing.storage import FileCheckpointStorage
from checkpointing.storage import files as storage_files

STATE_BYTES = int(os.environ.get("BENCH_STATE_BYTES", 1 << 30))
_PAYLOAD = 1024
_LOAD_BATCHES = 8
# Batches until Spark writes a snapshot, and until RocksDB has compacted the whole state again. Both take longer than a
# savepoint.
_SNAPSHOT = 10
_CYCLE = 4 * _SNAPSHOT
_SETTLING_BATCHES = _SNAPSHOT + 4
_STEADY_KEYS = 20_000
# The maximum disk use: Spark's working copy, retained versions, a copy per batch until they are deleted, and the
# changes of batches.
MOST_BYTES = 40 * STATE_BYTES + 150 * _STEADY_KEYS * _PAYLOAD
_DELAY_ROUNDS = int(os.environ.get("BENCH_ROUNDS", "6"))
_EVERY_S = 3.0
_ROUNDS = 7
_LIMIT_S = 600.0
# Transfers run with a lower priority than Spark's tasks. `cp` gets the same priority, so that other work slows both.
_AT_THEIR_PRIORITY = ("nice", "-n", str(NICENESS))
_STATE = "spark.sql.streaming.stateStore."


def measure() -> list[Figure]:
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="waymark-bench-", ignore_cleanup_errors=True) as directory:
        root = Path(directory)
        _check_room(root)
        with _Query(root) as query:
            query.load()
            # Measure what writes more later. Spans last at least 30 s, so that Linux has written new data to the disk.
            idle = _delay(query, root / "idle", _EVERY_S, _SNAPSHOT, _DELAY_ROUNDS)
            busy = _delay(query, root / "busy", 0.0, _CYCLE, _DELAY_ROUNDS)
            speed = _speed(query, root)
            return [*speed, *busy, *idle, Figure("disk use", query.most_used / 1e9, "GB", MOST_BYTES / 1e9)]


def _check_room(root: Path) -> None:
    free = shutil.disk_usage(root).free
    if free < MOST_BYTES:
        raise BenchmarkFailed(
            f"{free / 1e9:,.1f} GB are free in {root.parent}, up to {MOST_BYTES / 1e9:,.1f} GB may be needed; "
            "make room, set TMPDIR to another disk, or BENCH_STATE_BYTES to fewer than "
            f"{STATE_BYTES:,} bytes of state"
        )


def _used(root: Path) -> int:
    """Return the bytes on the disk. Files with several links count once."""
    blocks: dict[int, int] = {}
    for directory, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                stat = Path(directory, name).stat()
                blocks[stat.st_ino] = stat.st_blocks * 512
    return sum(blocks.values())


class _Query:
    """A query that keeps the first payload of every key. Each batch reads a file of keys."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._keys = STATE_BYTES // _PAYLOAD
        self._numbers = itertools.count()
        self.most_used = 0
        os.environ.setdefault("JAVA_HOME", str(find_java(os.environ, root / "java").home))

    def __enter__(self) -> Self:
        work = WorkDirectory(self._root / "work")
        settings = session_settings(work, 2, {})
        settings |= {
            "spark.eventLog.enabled": "false",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "4",
            # Limit the disk use: a compaction rewrites much of the state, and retained versions keep the old files.
            "spark.sql.streaming.minBatchesToRetain": "4",
            f"{_STATE}minDeltasForSnapshot": str(_SNAPSHOT),
            f"{_STATE}maintenanceInterval": "10s",
        }
        self._spark = start_session("savepoint benchmark", settings, work)
        from pyspark.sql import functions as f

        (self._root / "in").mkdir()
        lines = self._spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(self._root / "in"))
        payload = f.concat(
            *(f.unhex(f.sha2(f.concat(f.lit(f"{n} "), f.col("value")), 512)) for n in range(_PAYLOAD // 64))
        )  # bytes that cannot be compressed
        state = lines.groupBy(f.col("value").cast("long").alias("key")).agg(f.first(payload).alias("payload"))
        writer = state.writeStream.outputMode("update").format("noop")
        location = self._root / "work" / "queries" / "0"
        sink = sink_of(writer, writer_options(writer))
        self.files = QueryFiles(query_plan("state", explain(writer), sink, {}), location, None)
        self._query = writer.option("checkpointLocation", str(location)).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()
        self._spark.stop()

    def load(self) -> None:
        """Build the whole state, and run batches until it is in files that a savepoint can link."""
        each = self._keys // _LOAD_BATCHES
        for batch in range(_LOAD_BATCHES):
            self._run_batch(range(batch * each, (batch + 1) * each))
        for _ in range(_SETTLING_BATCHES):  # until Spark has uploaded and compacted a snapshot of it
            self.run_batch()

    def run_batch(self) -> float:
        """Run a small batch and return its duration in ms.

        Its keys are adjacent in RocksDB, which orders them by their last byte. With random keys, RocksDB would compact
        the whole state every forty batches, which takes as long as several batches.
        """
        first, parts = random.randrange(256), min(256, 256 * _STEADY_KEYS // self._keys)
        return self._run_batch([key for part in range(parts) for key in range((first + part) % 256, self._keys, 256)])

    def stage(self, directory: Path) -> StagedBatch:
        """Link the files of the last batch to `directory`. Retry if Spark's maintenance deletes files meanwhile."""
        for _ in range(20):
            batch = self.files.last_commit()
            assert batch is not None
            with contextlib.suppress(FileNotFoundError, IncompleteBatch):
                return stage(self.files, batch, directory)
        raise TimeoutError("no batch could be staged")

    def check_use(self) -> None:
        """Raise BenchmarkFailed if the benchmark uses more disk space than its limit."""
        used = _used(self._root)
        self.most_used = max(self.most_used, used)
        if used > MOST_BYTES:
            raise BenchmarkFailed(
                f"{self._root} has grown to {used / 1e9:,.1f} GB, {MOST_BYTES / 1e9:,.1f} GB are allowed"
            )

    def _run_batch(self, keys: Any) -> float:
        number = next(self._numbers)
        partial, file = self._root / "in" / f".{number}", self._root / "in" / f"{number}.txt"
        partial.write_text("\n".join(map(str, keys)))
        partial.rename(file)
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            progress = self._query.lastProgress
            if progress is not None and progress["batchId"] >= number and progress["numInputRows"]:
                # Delete the input: Spark lists it every 10 ms, and for 1,000 files this takes a third of two CPUs.
                file.unlink()
                return float(progress["durationMs"]["triggerExecution"])
            if (error := self._query.exception()) is not None:
                raise BenchmarkFailed(f"the query ended in batch {number}") from error
            time.sleep(0.01)
        raise TimeoutError(f"batch {number} did not end")


class _Savepoints:
    """Takes savepoints of `query` below `directory`, and caches the checksums of files as a driver does."""

    def __init__(self, query: _Query, directory: Path) -> None:
        self._query = query
        self._directory = directory
        self._storage = FileCheckpointStorage(None, new_id())
        self._numbers = itertools.count(1)
        self._checksums = FileChecksums()

    def take(self) -> tuple[float, float, int]:
        """Return the seconds until all files were linked, the seconds until `_metadata` was durable, and the bytes."""
        number = next(self._numbers)
        started = time.monotonic()
        location = self._storage.initialize_location(number, CheckpointKind.SAVEPOINT, str(self._directory))
        staged = self._query.stage(self._directory / f"staging-{number}")
        taken_s = time.monotonic() - started
        trigger = TriggerCheckpoint("", number, CheckpointKind.SAVEPOINT, 0, 0, location.directory, None)
        written = list(SnapshotWriter(trigger, self._checksums, PoolLedger()).write(staged))
        self._storage.write_metadata(_savepoint(number, location.directory, staged, written))
        durable_s = time.monotonic() - started
        shutil.rmtree(staged.directory)
        return taken_s, durable_s, sum(subtask.size for subtask in written)

    def remove(self) -> None:
        """Delete all savepoints and links, and wait until the disk is idle."""
        shutil.rmtree(self._directory, ignore_errors=True)
        os.sync()

    def taken_and_removed(self) -> tuple[float, float, int]:
        try:
            return self.take()
        finally:
            self.remove()

    def linked(self) -> float:
        """Take a savepoint with links. Return the seconds until `_metadata` was durable."""
        return self.take()[1]

    def copied(self) -> float:
        """Take a savepoint with copies. Return the seconds until `_metadata` was durable."""
        with _no_links():
            return self.linked()

    def copied_by_cp(self) -> float:
        """Copy the files of a savepoint with `cp -r` and sync them. Return the seconds."""
        directory = self._directory / f"cp-{next(self._numbers)}"
        self._query.stage(directory / "source")
        seconds = _cp(directory / "source", directory / "target", durable=True)
        shutil.rmtree(directory / "source")
        return seconds


def _savepoint(number: int, directory: str, staged: StagedBatch, written: list[DurableSubtask]) -> CompletedCheckpoint:
    operators = tuple(
        OperatorState(
            vertex.id, vertex.name, vertex.kind, vertex.query, vertex.parallelism,
            tuple(SubtaskState(d.subtask, SubtaskMetrics(), d.files, 0) for d in written if d.vertex == vertex),
        )
        for vertex in staged.files.plan.vertices
    )  # fmt: skip
    properties = CheckpointProperties(CheckpointKind.SAVEPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION)
    return CompletedCheckpoint(
        new_id(), "bench", "bench:savepoint", number, properties, 0, 0, operators,
        {"state": staged.batch}, directory, None,
    )  # fmt: skip


def _speed(query: _Query, root: Path) -> list[Figure]:
    """Measure without batches. The first savepoint computes all checksums, later ones only those of new files."""
    savepoints = _Savepoints(query, root / "savepoints")
    first = savepoints.taken_and_removed()
    linked = [savepoints.taken_and_removed() for _ in range(_ROUNDS)]
    staged = query.stage(root / "cp" / "source")
    size = sum(file.size for file in staged.selected)
    with _no_links():
        rounds = [
            (
                _copied(root, durable=False),
                _copied(root, durable=True),
                savepoints.taken_and_removed()[1],
                _Savepoints(query, root / "savepoints").taken_and_removed()[1],
            )
            for _ in range(_ROUNDS)
        ]
    cp, durable_cp, copied, hashed_copy = (statistics.median(column) for column in zip(*rounds, strict=True))
    shutil.rmtree(root / "cp")
    return [
        Figure("state in the savepoint", size / 1e9, "GB"),
        Figure("files", len(staged.selected), "files"),
        Figure("`cp -r` of them", cp, "s"),
        Figure("`cp -r` and sync", durable_cp, "s"),
        Figure("hard link of all files", statistics.median(t for t, _, _ in linked) * 1000, "ms", goal=100),
        Figure("hard link, `_metadata` durable, known checksums", statistics.median(d for _, d, _ in linked), "s"),
        Figure("hard link, `_metadata` durable, unknown checksums", first[1], "s"),
        Figure("copy against `cp -r` and sync", durable_cp / copied, "×", goal=0.9, at_most=False),
        Figure("copy against `cp -r`", cp / copied, "×"),
        Figure("copy with unknown checksums against `cp -r` and sync", durable_cp / hashed_copy, "×"),
    ]


def _copied(root: Path, *, durable: bool) -> float:
    source, target = root / "cp" / "source", root / "cp" / "target"
    os.sync()
    seconds = _cp(source, target, durable=durable)
    shutil.rmtree(target)
    os.sync()
    return seconds


def _cp(source: Path, target: Path, *, durable: bool) -> float:
    started = time.monotonic()
    subprocess.run([*_AT_THEIR_PRIORITY, "cp", "-r", str(source), str(target)], check=True)
    if durable:
        subprocess.run(
            [*_AT_THEIR_PRIORITY, "sync", *(str(path) for path in target.rglob("*") if path.is_file())], check=True
        )
    return time.monotonic() - started


@contextlib.contextmanager
def _no_links() -> Iterator[None]:
    with mock.patch.object(storage_files, "_linked", return_value=False):
        yield


@dataclass(frozen=True)
class _Arm:
    """An action during batches. `goal` is the maximum ratio of their durations with and without it."""

    name: str
    goal: float | None = None


# Two spans without an action in each round show how much such spans differ anyway.
_ALONE = (_Arm("no savepoint"), _Arm("no savepoint, once more"))
_LINKED, _COPIED = _Arm("a linked savepoint", 1.05), _Arm("a copied savepoint", 1.3)
# The unavoidable cost of copying the same number of bytes.
_CP = _Arm("`cp -r` of its files, and sync")
_ARMS = (_LINKED, _COPIED, _CP)


@dataclass
class _Compared:
    """The results of an action.

    `ratios` compare the batches of each round with those of the same round without an action. `spans_s` are the seconds
    of each savepoint or copy.
    """

    ratios: list[float] = field(default_factory=list)
    spans_s: list[float] = field(default_factory=list)

    def last(self) -> str:
        durable_after = f" ({self.spans_s[-1]:.1f} s)" if self.spans_s else ""
        return f"{self.ratios[-1]:.2f} ×{durable_after}"

    def figures(self, arm: _Arm) -> list[Figure]:
        error = statistics.stdev(self.ratios) / math.sqrt(len(self.ratios))
        figures = [
            Figure(f"batches during {arm.name}", statistics.mean(self.ratios), "×", arm.goal),
            Figure(f"batches during {arm.name}, standard error", error, "×"),
        ]
        if self.spans_s:
            figures.append(Figure(f"{arm.name}, durable after", statistics.median(self.spans_s), "s"))
        return figures


def _delay(query: _Query, root: Path, every_s: float, batches: int, rounds: int) -> list[Figure]:
    """Compare spans of `batches` during savepoints (or `cp`) with spans without them, in random order.

    A batch begins every `every_s`, or immediately if the previous one took longer. With 0, the query never waits for
    input and uses all CPUs. A savepoint begins when a batch has committed, as in a driver. If it takes longer than the
    next batch, no other savepoint begins with that batch. Every `_SNAPSHOT` batches, the query waits while
    savepoints are deleted: the cost of deleting a gigabyte is not a cost of the savepoint, and the disk may be too
    small for those of a whole span.
    """
    paced = _Paced(query, every_s)
    savepoints = _Savepoints(query, root / "meanwhile")
    savepoints.taken_and_removed()
    first, again = _ALONE
    act = {_LINKED: savepoints.linked, _COPIED: savepoints.copied, _CP: savepoints.copied_by_cp}
    compared = {arm: _Compared() for arm in (again, *_ARMS)}
    alone_ms = []

    def clean() -> None:
        query.check_use()
        savepoints.remove()

    for number in range(rounds):
        arms = [*_ALONE, *_ARMS]
        spans = {}
        for arm in random.sample(arms, len(arms)):
            spans[arm] = _span(paced, batches, act.get(arm), clean)
        first_ms, again_ms = spans[first][0], spans[again][0]
        compared[again].ratios.append(again_ms / first_ms)
        alone_ms += [first_ms, again_ms]
        for arm in _ARMS:
            batch_ms, durable_s = spans[arm]
            compared[arm].ratios.append(batch_ms / statistics.mean([first_ms, again_ms]))
            compared[arm].spans_s += durable_s
        said = ", ".join(f"{arm.name} {each.last()}" for arm, each in compared.items())
        print(f"round {number + 1}: {first_ms:.0f} ms, {said}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    figures = [Figure("batch without a savepoint", statistics.mean(alone_ms), "ms")]
    for arm, each in compared.items():
        figures += each.figures(arm)
    how = f"every {every_s:g} s" if every_s else "at full speed"
    return [replace(figure, case=how) for figure in figures]


def _span(
    paced: _Paced, batches: int, act: Callable[[], float] | None, clean: Callable[[], None]
) -> tuple[float, list[float]]:
    """Return the mean duration of the batches in ms, and the results of `act`, which runs at the same time.

    After every `_SNAPSHOT` batches, wait for `act` and call `clean`.
    """
    durations, results = [], []
    for _ in range(batches // _SNAPSHOT):
        acts: list[Future[float]] = []
        with ThreadPoolExecutor(1) as executor:
            for _ in range(_SNAPSHOT):
                if act is not None and (not acts or acts[-1].done()):
                    acts.append(executor.submit(act))
                durations.append(paced.run_batch())
        results += [each.result() for each in acts]
        clean()
    return statistics.mean(durations), results


class _Paced:
    """Runs batches of `query` that begin `every_s` apart, or as soon as the previous batch has ended."""

    def __init__(self, query: _Query, every_s: float) -> None:
        self._query, self._every_s, self._due = query, every_s, 0.0

    def run_batch(self) -> float:
        """Wait until the batch is due, run it, and return its duration in ms without the wait."""
        time.sleep(max(0.0, self._due - time.monotonic()))
        self._due = time.monotonic() + self._every_s
        return self._query.run_batch()
