"""A query over text files, which tests run, checkpoint and restore with any layout of Spark's state store."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, SubtaskMetrics, TriggerCheckpoint
from checkpointing.spark.plan import explain, query_plan, sink_of, writer_options
from checkpointing.spark.restore import Snapshot
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.snapshot import PoolLedger, SnapshotWriter
from checkpointing.spark.staging import QueryFiles, stage
from checkpointing.spark.starting_state import ContinuedBatch, SnapshotState, build_queries
from checkpointing.storage import FileCheckpointStorage

STATE = "spark.sql.streaming.stateStore."
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
LAYOUTS = {
    "rocksdb format 2": {"providerClass": _ROCKSDB, "checkpointFormatVersion": "2"},
    "rocksdb format 1": {"providerClass": _ROCKSDB, "checkpointFormatVersion": "1"},
    "rocksdb whole snapshots": {
        "providerClass": _ROCKSDB,
        "checkpointFormatVersion": "1",
        "rocksdb.changelogCheckpointing.enabled": "false",
    },
    "hdfs": {"providerClass": _HDFS, "checkpointFormatVersion": "1"},
}
# Ranges of batch numbers as the job manager assigns them: no number is in two ranges.
RANGES = (BatchNumbers("family", first, first + 10_000) for first in itertools.count(10_000, 10_000))
DRIVERS_LAYOUT, *OTHER_LAYOUTS = LAYOUTS


def word(number: int) -> str:
    """Return a word that is long and hard to compress, so that state files are large enough to be shared."""
    return hashlib.sha512(str(number).encode()).hexdigest() * 2


def write_input(file: Path, lines: Iterable[str]) -> None:
    """Write a file at once into a directory that a running query reads."""
    hidden = file.parents[1] / f".{file.name}"
    hidden.write_text("\n".join(lines))
    hidden.rename(file)


@dataclass
class Bench:
    """A runner of one query over text files, with one file per batch."""

    spark: Any
    root: Path
    layout: dict[str, str]
    expected: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def feed(self) -> None:
        number = next(self._numbers)
        chance = random.Random(number)
        words = [word(chance.randrange(120)) for _ in range(200)]
        self.expected.update(words)
        write_input(self.input / f"{number}.txt", words)

    @property
    def input(self) -> Path:
        (self.root / "in").mkdir(exist_ok=True)
        return self.root / "in"

    def lines(self) -> Any:
        return self.spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(self.input))

    def planned(self, writer: Any, location: Path) -> PlannedQuery:
        for key, value in self.layout.items():
            self.spark.conf.set(STATE + key, value)
        options = writer_options(writer)
        sink = sink_of(writer, options)
        plan = query_plan("words", explain(writer), sink, {})
        named = writer.queryName("words").option("checkpointLocation", str(location))
        return PlannedQuery(named, plan, location, sink)

    def run_all(self, query: RunningQuery) -> None:
        query._query.processAllAvailable()

    def snapshot(self, query: RunningQuery, checkpoint_id: int = 1, batch: int | None = None) -> CompletedCheckpoint:
        """Checkpoint a batch of the running query, by default the last one."""
        return write_checkpoint(query.files, self.root, checkpoint_id, batch)

    def restore(self, checkpoint: CompletedCheckpoint, planned: PlannedQuery, **more: Any) -> ContinuedBatch:
        """Build the query's checkpointLocation as a new attempt does, with batch numbers that no query has used."""
        state = restored_state(checkpoint, self.root, **more)
        return build_queries(state, self.spark, self.root, [planned], numbers=next(RANGES))["words"]


def restored_state(
    checkpoint: CompletedCheckpoint,
    root: Path,
    *,
    job_id: str = "job",
    keep_output: bool = False,
    writers_are_gone: bool = False,
    other_jobs: Sequence[str] = (),
) -> SnapshotState:
    nowhere = root / "nothing was copied"
    return SnapshotState(
        job_id,
        Snapshot(checkpoint),
        nowhere,
        False,
        keep_output,
        writers_are_gone,
        is_own=True,
        other_jobs=other_jobs,
    )


def write_checkpoint(
    files: QueryFiles,
    root: Path,
    checkpoint_id: int = 1,
    batch: int | None = None,
    batch_numbers: BatchNumbers | None = None,
) -> CompletedCheckpoint:
    """Checkpoint a batch of a query's directory, by default the last one, into real storage below `root`."""
    storage = FileCheckpointStorage(str(root / "checkpoints"), "ab" * 16)
    location = storage.initialize_location(checkpoint_id, CheckpointKind.CHECKPOINT, None)
    trigger = TriggerCheckpoint(
        "", checkpoint_id, CheckpointKind.CHECKPOINT, 0, 0, location.directory, location.shared_directory
    )
    batch = files.last_commit() if batch is None else batch
    assert batch is not None
    staged = stage(files, batch, root / f"staging-{checkpoint_id}")
    written = list(SnapshotWriter(trigger, FileChecksums(), PoolLedger()).write(staged))
    operators = []
    for vertex in files.plan.vertices:
        durable = [each for each in written if each.vertex == vertex]
        subtasks = tuple(SubtaskState(d.subtask, SubtaskMetrics(), d.files, 0) for d in durable)
        operators.append(OperatorState(vertex.id, vertex.name, vertex.kind, files.query, vertex.parallelism, subtasks))
    checkpoint = CompletedCheckpoint(
        "ab" * 16, "words", "wordcount:wordcount", checkpoint_id,
        CheckpointProperties(CheckpointKind.CHECKPOINT, RetentionPolicy.RETAIN_ON_CANCELLATION),
        0, 0, tuple(operators), {files.query: batch}, location.directory, location.shared_directory,
        batch_numbers=batch_numbers,
    )  # fmt: skip
    storage.write_metadata(checkpoint)
    return checkpoint
