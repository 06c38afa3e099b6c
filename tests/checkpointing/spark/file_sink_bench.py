"""A query with Spark's file sink, which tests run, checkpoint and restore."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from tests.checkpointing.spark.bench import Bench


@dataclass(frozen=True)
class Mount:
    """A local directory that is mounted at the path `at` of another Hadoop file system.

    `key` is the key of the mount in Hadoop's configuration.
    """

    directory: Path
    at: str
    key: str

    @classmethod
    def of(cls, directory: Path) -> Mount:
        authority = f"waymark-{uuid.uuid4().hex}"
        return cls(directory, f"viewfs://{authority}/data", f"fs.viewfs.mounttable.{authority}.link./data")

    def add_to(self, spark: Any) -> None:
        spark.sparkContext._jsc.hadoopConfiguration().set(self.key, f"file://{self.directory}")


@dataclass
class FileSink(Bench):
    """A query that writes lines to a file sink, with different batch sizes after each restore.

    `at` is the output directory's path for Spark, if it is not the local path.
    """

    at: str = ""

    @property
    def output(self) -> Path:
        return self.root / "out"

    def on_viewfs(self) -> FileSink:
        """Let Spark use the same directory by its path on another Hadoop file system."""
        mount = Mount.of(self.root)
        mount.add_to(self.spark)
        self.at = f"{mount.at}/out"
        return self

    def writing(self, name: str, *, files_per_batch: int = 1, output: str = "") -> PlannedQuery:
        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", str(files_per_batch))
        path = output or self.at or str(self.output)
        writer = lines.load(str(self.input)).writeStream.format("json").option("path", path)
        return self.planned(writer, self.root / name)

    def run(self, planned: PlannedQuery, batches: int) -> RunningQuery:
        query = RunningQuery(planned)
        query.start()
        for _ in range(batches):
            self.feed()
        self.run_all(query)
        return query

    def listed(self) -> Counter[str]:
        """Return the lines that a reader without the sink's log sees: those of all visible data files."""
        lines = (line for path in self.data_files() for line in path.read_text().splitlines())
        return Counter(json.loads(line)["value"] for line in lines)

    def data_files(self) -> list[Path]:
        paths = (path.relative_to(self.output) for path in self.output.rglob("*.json"))
        return [self.output / path for path in paths if not any(part.startswith((".", "_")) for part in path.parts)]

    def restored(self, checkpoint: CompletedCheckpoint, name: str, **more: Any) -> RunningQuery:
        """Restore the checkpoint and process all remaining input, with two files per batch."""
        planned = self.writing(name, files_per_batch=2)
        self.restore(checkpoint, planned, **more)
        return self.run(planned, 1)

    def rows(self) -> Counter[str]:
        return Counter(row["value"] for row in self.spark.read.json(self.at or str(self.output)).collect())
