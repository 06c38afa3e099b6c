"""Queries over text files, and their snapshots in checkpoint storage."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.layout import BatchFile, select_batch
from checkpointing.model.checkpoint import (
    CheckpointProperties,
    CompletedCheckpoint,
    OperatorState,
    RetentionPolicy,
    SubtaskState,
)
from checkpointing.model.messages import CheckpointKind, StateFile, SubtaskMetrics
from checkpointing.spark.plan import explain, query_plan, sink_of, writer_options
from checkpointing.spark.restore import Snapshot, restore_query
from checkpointing.storage import FileCheckpointStorage
from tests.waiting import eventually


@pytest.fixture(name="eventually")
def _eventually() -> Callable[..., object]:
    return eventually


@dataclass
class Queries:
    """A starter of queries over text files, one file per batch. Each query has a checkpointLocation below `root`."""

    spark: Any
    root: Path
    _files: Iterator[int] = field(default_factory=itertools.count)
    _snapshots: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _epoch: int = field(default_factory=lambda: int(time.time()) - 1000)
    started: list[Any] = field(default_factory=list)

    def feed(self, words: Sequence[str], into: str = "in") -> None:
        number = next(self._files)
        hidden = self.directory(into) / f".{number}"
        hidden.write_text("\n".join(words))
        os.utime(hidden, (self._epoch + number, self._epoch + number))  # Spark reads files in the order of these times
        hidden.rename(self.directory(into) / f"{number}.txt")

    def directory(self, name: str) -> Path:
        (self.root / name).mkdir(exist_ok=True)
        return self.root / name

    def lines(self, name: str = "in") -> Any:
        reader = self.spark.readStream.format("text").option("maxFilesPerTrigger", "1")
        return reader.load(str(self.directory(name)))

    def start(self, writer: Any, location: str, name: str = "words") -> Any:
        query = writer.queryName(name).option("checkpointLocation", str(self.root / location)).start()
        self.started.append(query)
        return query

    def run(self, writer: Any, location: str, name: str = "words") -> None:
        """Run the query until it has processed all available input."""
        query = self.start(writer, location, name)
        query.processAllAvailable()
        query.stop()

    def stop(self) -> None:
        for query in self.started:
            query.stop()

    def last_commit(self, location: str) -> int:
        """Return the number of the last committed batch, or -1 if there is none."""
        return max((int(path.name) for path in (self.root / location / "commits").glob("[0-9]*")), default=-1)

    # --- snapshots ---

    def snapshot(
        self, writer: Any, location: str, *, name: str = "words", kind: CheckpointKind = CheckpointKind.CHECKPOINT
    ) -> CompletedCheckpoint:
        """Snapshot the last committed batch. The operators are taken from `writer`, the query's stream writer."""
        number = next(self._snapshots)
        plan = query_plan(name, explain(writer), sink_of(writer, writer_options(writer)), {})
        storage = FileCheckpointStorage(str(self.root / "checkpoints"), "ab" * 16)
        at = storage.initialize_location(number, kind, str(self.root / "savepoints"))
        batch = self.last_commit(location)
        source = self.root / location
        listing = {str(path.relative_to(source)): path.stat().st_size for path in source.rglob("*") if path.is_file()}
        selected = select_batch(listing, batch, lambda path: (source / path).read_bytes())
        assert all(plan.vertex(file.owner) for file in selected), "a file of no operator that is known"
        prefix = "" if kind.is_savepoint else f"chk-{number}/"

        def saved(file: BatchFile) -> StateFile:
            target = Path(at.directory) / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file.path, target)
            digest = hashlib.sha256(target.read_bytes()).hexdigest()
            return StateFile(file.path, f"{prefix}{file.path}", file.size, digest)

        operators = []
        for (vertex_kind, index), vertex in plan.by_owner.items():
            mine = [file for file in selected if (file.owner.kind, file.owner.index) == (vertex_kind, index)]
            subtasks = tuple(
                SubtaskState(i, SubtaskMetrics(), tuple(saved(f) for f in mine if f.owner.subtask == i), 0)
                for i in range(vertex.parallelism)
            )
            operators.append(OperatorState(vertex.id, vertex.name, vertex.kind, name, vertex.parallelism, subtasks))
        checkpoint = CompletedCheckpoint(
            "ab" * 16, "words", "program:words", number,
            CheckpointProperties(kind, RetentionPolicy.RETAIN_ON_CANCELLATION),
            0, 0, tuple(operators), {name: batch}, at.directory, at.shared_directory,
        )  # fmt: skip
        storage.write_metadata(checkpoint)
        return checkpoint

    def restore(self, checkpoint: CompletedCheckpoint, writer: Any, location: str, name: str = "words") -> int | None:
        plan = query_plan(name, explain(writer), sink_of(writer, writer_options(writer)), {})
        return restore_query(Snapshot(checkpoint), name, plan.vertices, self.root / location)


@pytest.fixture(scope="module")
def queries_in(spark: Any) -> Callable[[Path], Queries]:
    """Return a function that creates Queries below a directory. Its caller stops them."""
    return lambda root: Queries(spark, root)


@pytest.fixture
def queries(queries_in: Callable[[Path], Queries], tmp_path: Path) -> Iterator[Queries]:
    made = queries_in(tmp_path)
    yield made
    made.stop()
