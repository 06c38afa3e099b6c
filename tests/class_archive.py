"""An archive of Spark's classes for a test run, like the archive that a job manager creates for its drivers.

A small Spark session takes 13 seconds of CPU time, nearly half of it for loading and verifying classes. JVMs that start
after the archive exists load the classes from it. JVMs that start earlier or have another class path do not use it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from checkpointing.java import find_java

# For JVMs that run for seconds only: without the second compiler, a small Spark session takes 13 seconds of CPU time
# instead of 24. Class verification stays enabled: without it, Flink's command line lost an argument.
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
_ROOT = Path(__file__).parents[1]


@contextlib.contextmanager
def made(archive: Path) -> Iterator[None]:
    """Create the archive in the background. Only the first process of the test run does it."""
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


if __name__ == "__main__":
    from checkpointing.spark.class_archive import make

    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
    archive = Path(sys.argv[1])
    os.environ["JAVA_HOME"] = str(find_java(os.environ, archive.parent / "java").home)
    make(archive)
