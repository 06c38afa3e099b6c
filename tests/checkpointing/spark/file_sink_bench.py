"""A query into Spark's file sink that a test runs, checkpoints and restores."""

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
    """A local directory, and the path that it has on another file system of Hadoop's. `key`: of the configuration."""

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
    """Lines into a file sink, cut into batches in another way each time.

    `at` names the output directory for Spark, where it is not the local path.
    """

    at: str = ""

    @property
    def output(self) -> Path:
        return self.root / "out"

    def on_viewfs(self) -> FileSink:
        """The same directory by a path of another file system of Hadoop's."""
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
        """What readers see who do not know the log: every data file below the output that is not hidden."""
        lines = (line for path in self.data_files() for line in path.read_text().splitlines())
        return Counter(json.loads(line)["value"] for line in lines)

    def data_files(self) -> list[Path]:
        paths = (path.relative_to(self.output) for path in self.output.rglob("*.json"))
        return [self.output / path for path in paths if not any(part.startswith((".", "_")) for part in path.parts)]

    def restored(self, checkpoint: CompletedCheckpoint, name: str, **more: Any) -> RunningQuery:
        """From the checkpoint, its batches cut in another way, run on over all input."""
        planned = self.writing(name, files_per_batch=2)
        self.restore(checkpoint, planned, **more)
        return self.run(planned, 1)

    def rows(self) -> Counter[str]:
        return Counter(row["value"] for row in self.spark.read.json(self.at or str(self.output)).collect())
