"""The JVM beside a driver's Python process: started through spark-submit, watched, ended.

Not started here when the driver runs inside a cluster: there spark-submit's JVM has started the Python process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import stat
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpointing.jobs.launching import class_archive
from checkpointing.jobs.launching.deployment import deployment_of
from checkpointing.jobs.launching.processes import write_private
from checkpointing.jobs.launching.session_settings import JVM_OPTIONS
from checkpointing.jobs.launching.submission import PROPERTIES_NAME, client_arguments, properties_text
from checkpointing.spark_internals import (
    active_context,
    gateway,
    hadoop_configuration,
    java_context,
    jvm_process,
    jvm_view,
    start_jvm,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_STOP_S = 10.0
_LONGEST_COMPLAINT = 200_000
_TELLING = re.compile(r'^(Exception in thread "\w+" |Error: |Invalid |Unrecognized )')
_CRASHED = "A fatal error has been detected by the Java Runtime Environment"
_GIVEN_UP = re.compile(r"Application has been killed\. Reason: (.*)")
_OUT_OF_MEMORY_EXIT_CODE = 3
_KILLED = -9


class JvmLost(Exception):
    """The JVM beside this process ended by itself."""


class JvmNotStarted(Exception):
    """spark-submit gave up, or its JVM ended before it could be talked to; the text has what it said.

    `crashed`: by a fault of Java's own.
    """

    def __init__(self, text: str, *, crashed: bool = False) -> None:
        super().__init__(text)
        self.crashed = crashed


class ClusterRefused(Exception):
    """The cluster did not take the application, or gave it up before it could begin; the text has what it said."""


class ContextStopped(Exception):
    """Somebody stopped the SparkContext while the job was running."""


def launch(name: str, settings: Mapping[str, str], directory: Path) -> None:
    """Start the JVM with `settings`, every one of them out of other users' sight. Does nothing when there is one."""
    archive = os.environ.get(class_archive.VARIABLE, "")
    try:
        _launch(name, settings, directory, archive)
    except JvmNotStarted as error:
        if not archive or not error.crashed:
            raise
        log.warning("Java crashed with the class archive %s: it is removed, and Java started without", archive)
        Path(archive).unlink(missing_ok=True)
        _launch(name, settings, directory, "")


def _launch(name: str, settings: Mapping[str, str], directory: Path, archive: str) -> None:
    from pyspark.errors import PySparkRuntimeError

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        properties = write_private(directory / PROPERTIES_NAME, properties_text(_with_own_options(settings, archive)))
        arguments = client_arguments(deployment_of(settings), name, properties)
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(arguments)
    written = errors_size()
    try:
        start_jvm()
    except PySparkRuntimeError as error:
        said = _errors_since(written)
        crashed = _CRASHED in said
        raise JvmNotStarted(f"Spark's JVM did not start: {_complaint(said) or error}", crashed=crashed) from error


def _with_own_options(settings: Mapping[str, str], archive: str) -> dict[str, str]:
    """Java knows no TMPDIR. What the job's own options say comes last, and so wins."""
    own = f'"-Djava.io.tmpdir={tempfile.gettempdir()}" {class_archive.options(archive)}'.strip()
    return {**settings, JVM_OPTIONS: f"{own} {settings.get(JVM_OPTIONS, '')}".strip()}


def given_up(master: str, written: int) -> ClusterRefused | None:
    """Why Spark gave an application on `master` up since this process's errors had `written` bytes; None: it did not.

    What Python gets to see of it is only that the context is stopped.
    """
    reason = _GIVEN_UP.search(_errors_since(written))
    return ClusterRefused(f"Spark's master {master} did not take the job: {reason[1]}") if reason else None


def errors_size() -> int:
    """How much this process's standard error holds, which is the JVM's, too; 0 when it is no file."""
    found = os.fstat(2)
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def _errors_since(size: int) -> str:
    try:
        with Path("/proc/self/fd/2").open("rb") as file:
            file.seek(size)
            return file.read(_LONGEST_COMPLAINT).decode(errors="replace") if errors_size() > size else ""
    except OSError:
        return ""


def _complaint(text: str) -> str:
    """The lines that say what is wrong, without stack traces and warnings."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "WARNING"))]
    telling = [line for line in lines if _TELLING.match(line)]
    return " ".join(line.removeprefix('Exception in thread "main" ') for line in (telling or lines[-1:]))


def hadoop_path(spark: Any, location: str) -> tuple[Any, Any]:
    """Return the Hadoop path of `location` and its file system, whichever of Spark's it is. Py4JError."""
    path = jvm_view(spark).org.apache.hadoop.fs.Path(location)
    return path, path.getFileSystem(hadoop_configuration(spark))


def is_stopped(spark: SparkSession) -> bool:
    context = java_context(spark.sparkContext)
    return context is None or bool(context.isStopped())


def exit_code(wait_s: float) -> int | None:
    """None when the JVM still runs after `wait_s`, and when none was started; negative for a signal."""
    process = jvm_process()
    try:
        return None if process is None else process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


def lost(code: int, memory: str) -> JvmLost:
    """In words. `memory` is the heap's limit, as `spark.driver.memory` names it."""
    if code == _OUT_OF_MEMORY_EXIT_CODE:
        return JvmLost(
            f"The driver's JVM ran out of memory: its heap of {memory} is full. Raise spark.driver.memory, or let the "
            "program collect less to the driver."
        )
    how = f"through signal {-code}" if code < 0 else f"with exit code {code}"
    why = " Somebody killed it; the kernel does so when the machine is out of memory." if code == _KILLED else ""
    return JvmLost(f"The driver's JVM ended {how}.{why}")


def leave() -> None:
    """Have the JVM end by itself, as it does with its input, and wait for it. No session may be in use."""
    process: Any = jvm_process()
    gateway().shutdown()
    process.stdin.close()
    process.wait()


def kill() -> None:
    """End whatever Spark does, now. Returns when the JVM is gone; may be called again."""
    process = jvm_process()
    if process is not None:
        process.kill()
        process.wait()
    elif gateway() is not None:
        _stop_spark()


def _stop_spark() -> None:
    """Inside a cluster the JVM is this process's parent: it ends with it, its queries end now."""
    stopping = threading.Thread(target=_stop_context, daemon=True)
    stopping.start()
    stopping.join(_STOP_S)


def _stop_context() -> None:
    context = active_context()
    if context is not None:
        with contextlib.suppress(Exception):
            context.stop()
