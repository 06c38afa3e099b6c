"""Spark's classes, loaded and verified once for a whole test run, as a job manager has it done for its drivers.

A small Spark session takes 13 seconds of processor time, nearly half of which is for loading classes. The JVMs that
start once the archive is there take them from it; those before, and any with another class path, start as ever.
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


if __name__ == "__main__":
    from checkpointing.spark.class_archive import make

    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)
    archive = Path(sys.argv[1])
    os.environ["JAVA_HOME"] = str(find_java(os.environ, archive.parent / "java").home)
    make(archive)
