"""An archive of Spark's classes for a test run (Java's class data sharing).

A small Spark session takes 13 seconds of CPU time, nearly half of it for loading and verifying classes. JVMs that start
after the archive exists load the classes from it. JVMs that start earlier or have another class path do not use it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from checkpointing.java import find_java

# For JVMs that run for seconds only: without the second compiler, a small Spark session takes 13 seconds of CPU time
# instead of 24. Class verification stays enabled: without it, Flink's command line lost an argument.
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
_ROOT = Path(__file__).parents[1]
_QUIET = "-Xlog:cds*=off -Xlog:class+path*=off"


def options(archive: Path) -> str:
    """Return the options for JVMs that use the archive if it exists."""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}'


@contextlib.contextmanager
def made(archive: Path) -> Iterator[None]:
    """Create the archive in the background. Only the first process of the test run does it.

    A failure is a warning in the summary of the run, because the tests only take longer.
    """
    if not _is_ours_to_make(archive):
        yield
        return
    log = archive.with_suffix(".log")
    with log.open("w") as output:
        maker = subprocess.Popen(
            [sys.executable, "-m", "tests.class_archive", str(archive)],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        if maker.poll():
            warnings.warn(f"no archive of classes was made:\n{log.read_text()[-2000:]}", stacklevel=1)
        maker.terminate()
        maker.wait()


def _is_ours_to_make(archive: Path) -> bool:
    try:
        archive.with_suffix(".begun").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _make(archive: Path) -> None:
    """Run a session that ends by itself, so that Java writes the classes that it has loaded."""
    from checkpointing.jobs.launching.session_settings import JVM_OPTIONS, WorkDirectory, session_settings
    from checkpointing.spark.session import start_session
    from checkpointing.spark.spare import warm_up
    from checkpointing.spark_internals import gateway, jvm_process

    partial = archive.with_suffix(".partial")
    with tempfile.TemporaryDirectory(prefix="waymark-classes-") as directory:
        work = WorkDirectory(Path(directory))
        writing = {JVM_OPTIONS: f'"-XX:ArchiveClassesAtExit={partial}" {_QUIET}', "spark.driver.memory": "512m"}
        spark = start_session("class archive", session_settings(work, 2, writing), work)
        warm_up(spark, work.spark / "warm-up")
        spark.stop()
        gateway().shutdown()
        process = jvm_process()
        process.stdin.close()
        process.wait()
    partial.rename(archive)


if __name__ == "__main__":
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
    os.environ.pop("SPARK_SUBMIT_OPTS", None)  # Java cannot read an archive and write one at the same time
    path = Path(sys.argv[1])
    os.environ["JAVA_HOME"] = str(find_java(os.environ, path.parent / "java").home)
    _make(path)
