"""The driver's SparkSession: quiet, on loopback, everything it writes inside the attempt's work directory.

A `spark.*` key of the job's configuration always wins over what is set here.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_PARALLELISM = 2
_STATE = "spark.sql.streaming.stateStore."


@dataclass(frozen=True)
class WorkDirectory:
    """The attempt's own directory, and who keeps what where in it."""

    root: Path

    @property
    def queries(self) -> Path:
        """One fresh checkpointLocation per query."""
        return self.root / "queries"

    @property
    def staging(self) -> Path:
        """Hard links of a snapshot in the making; same file system as `queries`."""
        return self.root / "staging"

    @property
    def event_log(self) -> Path:
        return self.root / "events"

    @property
    def program(self) -> Path:
        return self.root / "program"

    @property
    def spark(self) -> Path:
        """Spark's own scratch space: shuffle files, RocksDB's working copies, warehouse."""
        return self.root / "spark"


def session_settings(work: WorkDirectory, parallelism: int | None, configuration: Mapping[str, str]) -> dict[str, str]:
    """Every `spark.*` setting of the session; those that its snapshots and figures rest on cannot be overridden."""
    cores = parallelism or DEFAULT_PARALLELISM
    defaults = {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "768m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "false",
        # Unique file names, checksums, small increments: the layout whose snapshots are safest.
        f"{_STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STATE}checkpointFormatVersion": "2",
        "spark.python.authenticate.socketTimeout": "180s",  # the default is too short for a loaded machine
        # PySpark binds to "localhost", a name that a bare machine does not know; a socket file needs no name.
        "spark.python.unix.domain.socket.enabled": str(not resolves("localhost")).lower(),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()} "
            f"-Dderby.system.home={work.spark / 'derby'} -XX:+UseSerialGC"
        ),
    }
    fixed = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(work.spark),
        "spark.sql.warehouse.dir": (work.spark / "warehouse").as_uri(),
        "spark.sql.streaming.stopActiveRunOnRestart": "false",
        # The source of the per-subtask figures (task_metrics.py); rolled, read and deleted as it grows.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": work.event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "10m",
    }
    settings = {**defaults, **{k: v for k, v in configuration.items() if k.startswith("spark.")}, **fixed}
    settings["spark.sql.streaming.minBatchesToRetain"] = str(_batches_to_retain(configuration))
    return settings


def resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, 0)
    except socket.gaierror:
        return False
    return True


LEAST_BATCHES_TO_RETAIN = 20


def _batches_to_retain(configuration: Mapping[str, str]) -> int:
    """Enough that Spark's cleaning does not reach the files of a batch that is being snapshotted."""
    asked = configuration.get("spark.sql.streaming.minBatchesToRetain", "")
    return max(LEAST_BATCHES_TO_RETAIN, int(asked)) if asked.strip().isdigit() else 100


def start_session(name: str, settings: Mapping[str, str], work: WorkDirectory) -> SparkSession:
    for directory in (work.queries, work.staging, work.event_log, work.spark):
        directory.mkdir(parents=True, exist_ok=True)
    work.event_log.chmod(0o700)  # the events repeat the configuration
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


class JvmLost(Exception):
    """The JVM beside this process ended by itself."""


def jvm_exit_code(wait_s: float) -> int | None:
    """None when the JVM still runs after `wait_s`, and when none was started; negative for a signal."""
    process = _jvm_process()
    try:
        return None if process is None else process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


def kill_jvm() -> None:
    """End whatever Spark does, now. Returns when the JVM is gone; may be called again."""
    process = _jvm_process()
    if process is not None:
        process.kill()
        process.wait()


def _jvm_process() -> subprocess.Popen[bytes] | None:
    context = sys.modules.get("pyspark.core.context")
    gateway = context.SparkContext._gateway if context is not None else None  # noqa: SLF001 - no public way to it
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process
