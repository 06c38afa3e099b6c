"""The JVM next to a driver's Python process: started through spark-submit, watched, ended.

A driver inside a cluster does not start it here: there, spark-submit's JVM has started the Python process.
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
_GIVEN_UP = re.compile(r"Application has been killed\. Reason: (.*)")
_OUT_OF_MEMORY_EXIT_CODE = 3
_KILLED = -9


class JvmLost(Exception):
    """The JVM next to this process ended by itself."""


class JvmNotStarted(Exception):
    """spark-submit failed, or its JVM ended before it answered. The text contains its output."""


class ClusterRefused(Exception):
    """The cluster did not accept the application, or removed it before it began. The text contains the reason."""


class ContextStopped(Exception):
    """The SparkContext was stopped while the job was running."""


def launch(name: str, settings: Mapping[str, str], directory: Path) -> None:
    """Start the JVM. Other users of the machine cannot see its settings. Do nothing if a JVM already runs."""
    from pyspark.errors import PySparkRuntimeError

    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        properties = write_private(directory / PROPERTIES_NAME, properties_text(_with_own_options(settings)))
        arguments = client_arguments(deployment_of(settings), name, properties)
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(arguments)
    written = errors_size()
    try:
        start_jvm()
    except PySparkRuntimeError as error:
        raise JvmNotStarted(f"Spark's JVM did not start: {_complaint(_errors_since(written)) or error}") from error


def _with_own_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with an option for the JVM: Java ignores TMPDIR.

    The job's own options come last and override it.
    """
    own = f'"-Djava.io.tmpdir={tempfile.gettempdir()}"'
    return {**settings, JVM_OPTIONS: f"{own} {settings.get(JVM_OPTIONS, '')}".strip()}


def application_failure(master: str, written: int) -> ClusterRefused | None:
    """Return why Spark gave up an application on `master`, or None if it did not.

    `written` is the size of this process's errors before the start. Python itself sees only that the context is
    stopped.
    """
    reason = _GIVEN_UP.search(_errors_since(written))
    return ClusterRefused(f"Spark's master {master} did not take the job: {reason[1]}") if reason else None


def errors_size() -> int:
    """Return the size of this process's standard error, which the JVM shares, or 0 if it is not a file."""
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
    """Return the lines with the error, without stack traces and warnings."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "WARNING"))]
    telling = [line for line in lines if _TELLING.match(line)]
    return " ".join(line.removeprefix('Exception in thread "main" ') for line in (telling or lines[-1:]))


def hadoop_path(spark: Any, location: str) -> tuple[Any, Any]:
    """Return the Hadoop path of `location` and its file system. Raise Py4JError."""
    path = jvm_view(spark).org.apache.hadoop.fs.Path(location)
    return path, path.getFileSystem(hadoop_configuration(spark))


def is_stopped(spark: SparkSession) -> bool:
    context = java_context(spark.sparkContext)
    return context is None or bool(context.isStopped())


def exit_code(wait_s: float) -> int | None:
    """Return the JVM's exit code, negative for a signal.

    Return None if it still runs after `wait_s` or was never started.
    """
    process = jvm_process()
    try:
        return None if process is None else process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


def lost(code: int, memory: str) -> JvmLost:
    """Return an error that explains the exit code. `memory` is the heap's limit, the value of `spark.driver.memory`."""
    if code == _OUT_OF_MEMORY_EXIT_CODE:
        return JvmLost(
            f"The driver's JVM ran out of memory: its heap of {memory} is full. Raise spark.driver.memory, or let the "
            "program collect less to the driver."
        )
    how = f"through signal {-code}" if code < 0 else f"with exit code {code}"
    why = " Somebody killed it; the kernel does so when the machine is out of memory." if code == _KILLED else ""
    return JvmLost(f"The driver's JVM ended {how}.{why}")


def kill() -> None:
    """End Spark now. Return when the JVM has ended. May be called again."""
    process = jvm_process()
    if process is not None:
        process.kill()
        process.wait()
    elif gateway() is not None:
        _stop_spark()


def _stop_spark() -> None:
    """Stop Spark's queries inside a cluster. The JVM there is this process's parent, and ends after it."""
    stopping = threading.Thread(target=_stop_context, daemon=True)
    stopping.start()
    stopping.join(_STOP_S)


def _stop_context() -> None:
    context = active_context()
    if context is not None:
        with contextlib.suppress(Exception):
            context.stop()
