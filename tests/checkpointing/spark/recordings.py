"""Checkpoint directories that real Spark wrote, for tests that only read or damage them.

They are zip files in tests/checkpointing/samples/spark. `python -m tests.checkpointing.spark.recordings` records them
again. test_recordings.py checks that Spark still writes the same names and formats.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointing.spark.plan import Sink, explain, query_plan
from checkpointing.spark.query_plan import QueryPlan
from checkpointing.spark.staging import QueryFiles
from tests.checkpointing.spark.bench import LAYOUTS, STATE
from tests.spark_session import PARTITIONS, put_back, spark_session
from tests.waiting import eventually

SAMPLES = Path(__file__).parents[1] / "samples" / "spark"
NOOP = Sink("noop", None)
_CHANGELOG = {"rocksdb.changelogCheckpointing.enabled": "true"}
_OFTEN = {"minDeltasForSnapshot": "2"}


@dataclass(frozen=True)
class LocalLog:
    """The log of a file sink, which is read without a JVM."""

    output: Path

    def __str__(self) -> str:
        return str(self.output)

    def log_names(self) -> set[str]:
        return {path.name for path in self.output.glob("_spark_metadata/[!.]*")}

    def size_of(self, name: str) -> int:
        return self.copy_of(name).stat().st_size

    def copy_of(self, name: str) -> Path:
        return self.output / "_spark_metadata" / name


@dataclass(frozen=True)
class Recording:
    """The directories that a query named `words` left after its last batch.

    `root` has the checkpointLocation, the plan as text, and `out`, a file sink's directory without the rows.
    """

    root: Path

    @property
    def location(self) -> Path:
        return self.root / "location"

    @property
    def has_file_sink(self) -> bool:
        return (self.root / "out").exists()

    @property
    def plan(self) -> QueryPlan:
        sink = Sink("json", str(self.root / "out")) if self.has_file_sink else NOOP
        return query_plan("words", (self.root / "plan.txt").read_text(), sink, {})

    @property
    def files(self) -> QueryFiles:
        return QueryFiles(self.plan, self.location, LocalLog(self.root / "out") if self.has_file_sink else None)


def unpacked(name: str, root: Path) -> Recording:
    """Unpack the recording of that name below `root`, and return it. Tests may change the files."""
    with zipfile.ZipFile(_sample(name)) as archive:
        archive.extractall(root)
    return Recording(root)


def _sample(name: str) -> Path:
    return SAMPLES / f"{name.replace(' ', '-')}.zip"


# --- the queries -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """A query to record. `frame` makes the query's rows from the input's rows.

    The recorder waits for state files with `suffix`, which have a partition's whole state. It is "" without state.
    """

    frame: Callable[[Any], Any]
    layout: str = "rocksdb format 2"
    batches: int = 5
    suffix: str = ".zip"

    def writer(self, spark: Any, root: Path) -> Any:
        """Return the query's writer: a query without state writes files, a stateful one writes nothing."""
        frame = self.frame(spark.readStream.format("text").load(str(root / "in")))
        if self.suffix:
            return frame.writeStream.outputMode("update").format("noop")
        return frame.writeStream.format("json").option("path", str(root / "out"))


def _counted(lines: Any) -> Any:
    return lines.groupBy("value").count()


def _distinct(lines: Any) -> Any:
    return lines.dropDuplicates(["value"])


def _total_of_distinct(lines: Any) -> Any:
    return _distinct(lines).groupBy().count()


RECORDINGS = {
    "count in rocksdb format 2": Recorded(_counted),
    "count in rocksdb format 1": Recorded(_counted, "rocksdb format 1"),
    "count in rocksdb whole snapshots": Recorded(_counted, "rocksdb whole snapshots"),
    "count in hdfs": Recorded(_counted, "hdfs", suffix=".snapshot"),
    "distinct": Recorded(_distinct),
    "total of distinct": Recorded(_total_of_distinct),
    "lines into files": Recorded(lambda lines: lines, batches=12, suffix=""),
}


def record(spark: Any, name: str, root: Path) -> Recording:
    """Run the query of that name below `root`, and return its recording. This changes settings of the session."""
    recorded = RECORDINGS[name]
    (root / "in").mkdir(parents=True)
    for key, value in {**_CHANGELOG, **_OFTEN, **LAYOUTS[recorded.layout]}.items():
        spark.conf.set(STATE + key, value)
    writer = recorded.writer(spark, root)
    (root / "plan.txt").write_text(explain(writer))
    query = writer.queryName("words").option("checkpointLocation", str(root / "location")).start()
    try:
        for batch in range(recorded.batches):
            hidden = root / f".{batch}"
            hidden.write_text("\n".join(f"word {number} of {batch % 3}" for number in range(20)))
            hidden.rename(root / "in" / f"{batch}.txt")
            query.processAllAvailable()
        eventually("a whole state of each partition", lambda: _is_whole(root, recorded.suffix))
    finally:
        query.stop()
    return Recording(root)


def _is_whole(root: Path, suffix: str) -> bool:
    partitions = [root / "location" / "state" / "0" / str(number) for number in range(PARTITIONS)]
    return not suffix or all([*partition.glob(f"*{suffix}")] for partition in partitions if partition.exists())


def _pack(recording: Recording, target: Path) -> None:
    kept = [recording.root / "plan.txt", *recording.location.rglob("*"), *recording.root.glob("out/_spark_metadata/*")]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in kept if path.is_file() and ".tmp" not in path.name):
            archive.write(path, path.relative_to(recording.root))


def main() -> None:
    from checkpointing.java import find_java

    with tempfile.TemporaryDirectory(prefix="waymark-recordings-") as directory:
        root = Path(directory)
        os.environ["JAVA_HOME"] = str(find_java(os.environ, root / "java").home)
        SAMPLES.mkdir(exist_ok=True)
        with spark_session(root / "session") as spark:
            for name in RECORDINGS:
                with put_back(spark):
                    recording = record(spark, name, root / _sample(name).stem)
                # Spark's maintenance may still write after the query has ended, so pack a copy.
                settled = Recording(shutil.copytree(recording.root, root / "settled" / recording.root.name))
                _pack(settled, _sample(name))


if __name__ == "__main__":
    main()
