"""Spark's classes, loaded and verified once for a whole test run: Java's class data sharing.

A small Spark session takes 13 seconds of processor time, nearly half of which is for loading classes. Of one session
they are kept in an archive; the JVMs that start once it is there take them from it, and so does every driver of a job.
Those before, and any with another class path, start as ever.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from checkpointing.java import find_java

# For JVMs that live for seconds: without the second compiler a small Spark session takes 13 seconds of processor time
# instead of 24. Classes are verified all the same: Flink's command line lost an argument where they were not.
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
_ROOT = Path(__file__).parents[1]


def options(archive: Path) -> str:
    """For `SPARK_SUBMIT_OPTS`. Java says nothing about an archive that is not there, or not for it."""
    return f"-XX:SharedArchiveFile={archive} -Xlog:disable"


@contextlib.contextmanager
def made(archive: Path) -> Iterator[None]:
    """It is made beside whatever runs meanwhile, by the first of all processes that comes here."""
    if not _is_ours_to_make(archive):
        yield
        return
    maker = subprocess.Popen(
        [sys.executable, "-m", "tests.class_archive", str(archive)],
        cwd=_ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        maker.terminate()
        maker.wait()


def _is_ours_to_make(archive: Path) -> bool:
    try:
        archive.with_suffix(".begun").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _make(archive: Path) -> None:
    directory, partial = archive.parent / "class-archive", archive.with_suffix(".partial")
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
    os.environ["JAVA_HOME"] = str(find_java(os.environ, directory / "java").home)
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={partial} -Xlog:disable"
    _run_a_query(directory)
    partial.rename(archive)


def _run_a_query(directory: Path) -> None:
    """In a session of its own, whose JVM has ended when this returns."""
    from pyspark import SparkContext

    from tests.spark_session import spark_session

    (directory / "in").mkdir(parents=True)
    (directory / "in" / "lines").write_text("a\nb\na")
    with spark_session(directory / "session") as spark:
        counts = spark.readStream.format("text").load(str(directory / "in")).groupBy("value").count()
        writer = counts.writeStream.outputMode("update").foreachBatch(lambda frame, _: frame.collect())
        query = writer.option("checkpointLocation", str(directory / "location")).start()
        query.processAllAvailable()
        query.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with its input, and writes the archive
    gateway.proc.wait()


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
