"""What programs with older versions of Spark left: checkpoint locations, event logs, and Spark's own progress.

They are archives in tests/foreign/samples. `python -m tests.foreign.recordings` records them again.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path

from tests.foreign.foreign_programs import SHAPES, VERSIONS, Place, foreign
from tests.waiting import eventually

SAMPLES = Path(__file__).with_name("samples")
RECORDED = VERSIONS[:-1]
QUERIES = ("windowed", "joined_rocksdb", "failing")
BATCHES = 3
# The archive of a log that Spark has not compressed is smaller.
SETTINGS = {"spark.eventLog.compress": "false", "spark.driver.host": "127.0.0.1"}


def unpacked(version: str, root: Path) -> Place:
    """Unpack the recording of this version below `root`, with the times of its files."""
    with tarfile.open(_sample(version)) as archive:
        archive.extractall(root, filter="data")
    return Place(root, SETTINGS)


def _sample(version: str) -> Path:
    return SAMPLES / f"spark-{version}.tar.xz"


def record(version: str, root: Path) -> Place:
    place = Place(root, SETTINGS)
    with foreign(place, version, SHAPES, *QUERIES):
        eventually("a failure", lambda: place.reports("terminated"))
        eventually("batches", lambda: all(len(place.reports(name=name)) >= BATCHES for name in QUERIES[:-1]))
    return place


def _pack(place: Place, target: Path) -> None:
    with tarfile.open(target, "w:xz") as archive:
        for name in ("checkpoints", "logs", "progress.jsonl"):
            archive.add(place.root / name, name, filter=_kept)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uname = member.gname = ""
    return None if Path(member.name).name.startswith(".") else member


def main() -> None:
    from checkpointing.java import find_java

    with tempfile.TemporaryDirectory(prefix="waymark-recordings-") as directory:
        os.environ["JAVA_HOME"] = str(find_java(os.environ, Path(directory) / "java").home)
        SAMPLES.mkdir(exist_ok=True)
        for version in RECORDED:
            _pack(record(version, Path(directory) / version), _sample(version))


if __name__ == "__main__":
    main()
