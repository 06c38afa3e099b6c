"""Makes a class archive: `python -m checkpointing.spark.class_archive PATH`. See jobs/launching/class_archive.py.

The process starts a session like a driver's, runs two batches of a small query, and ends. Its JVM then writes the
classes that it has loaded. The process has the lowest priority and ends with its standard input. A lock ensures that
only one such process runs for an archive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from checkpointing.java import find_java
from checkpointing.jobs.launching import class_archive
from checkpointing.jobs.launching.session_settings import JVM_OPTIONS, WorkDirectory, session_settings
from checkpointing.spark import jvm
from checkpointing.spark.session import start_session
from checkpointing.spark.spare import warm_up

_MEMORY = "512m"  # about the minimum that Spark accepts


def make(archive: Path) -> None:
    """Make the archive. Raise JvmNotStarted or OSError.

    Raise FileNotFoundError if Java has written no archive, because it cannot do so for every class path.
    """
    directory = Path(tempfile.mkdtemp(prefix="waymark-classes-"))
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        work = WorkDirectory(directory)
        options = class_archive.making_options(partial)
        settings = session_settings(work, 2, {"spark.driver.memory": _MEMORY, JVM_OPTIONS: options})
        spark = start_session("class archive", settings, work)
        warm_up(spark, work.spark / "warm-up")
        spark.stop()
        jvm.leave()
        class_archive.publish(partial, archive)
    except BaseException:
        jvm.kill()
        raise
    finally:
        partial.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: list[str]) -> int:
    [path] = arguments
    archive = Path(path)
    if os.getpgrp() != os.getpid():
        os.setpgrp()  # the signal at the end of input must not reach the parent process
    _lower_priority()
    threading.Thread(target=_end_with_input, daemon=True).start()
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return class_archive.BEING_MADE
        os.environ.setdefault("JAVA_HOME", str(find_java(os.environ, archive.parent / "java").home))
        make(archive)
    return 0


def _lower_priority() -> None:
    os.nice(19)
    with contextlib.suppress(OSError):  # Linux first shares CPU time among sessions, and this process leads a session
        Path("/proc/self/autogroup").write_text("19")


def _end_with_input() -> None:
    """End this process and its JVM, which is in the same group, at the end of input. Nothing more is written."""
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
