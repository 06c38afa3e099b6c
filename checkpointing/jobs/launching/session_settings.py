"""The settings of a driver's SparkSession. Spark writes only into the attempt's work directory.

Spark binds to loopback if all of it runs on this machine. A `spark.*` key of the job's configuration overrides what is
set here, except for settings that snapshots and figures depend on.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from checkpointing.checkpoint_location.schema_paths import hadoop_path
from checkpointing.jobs.launching.deployment import DEFAULT_PARALLELISM, MASTER, ClusterManager, deployment_of
from checkpointing.jobs.launching.signature import HEARTBEAT, heartbeat_of
from checkpointing.model.job_environment import JobEnvironment

DRIVER_MEMORY = "768m"
JVM_OPTIONS = "spark.driver.extraJavaOptions"
OUT_OF_MEMORY_OPTION = "-XX:+ExitOnOutOfMemoryError"
LEAST_BATCHES_TO_RETAIN = 20
_STATE = "spark.sql.streaming.stateStore."

# These events are two fifths of the event log's bytes. The first one repeats the configuration, which may hold secrets.
_EVENTS_NOT_READ = (
    "SparkListenerEnvironmentUpdate",
    "SparkListenerStageSubmitted",
    "SparkListenerStageCompleted",
    "SparkListenerTaskStart",
    "SparkListenerJobEnd",
)


@dataclass(frozen=True)
class WorkDirectory:
    """The paths in an attempt's work directory.

    `session` is the directory for the files of a session that started before its attempt was known.
    """

    root: Path
    session: Path | None = None

    @property
    def queries(self) -> Path:
        """Return the directory with one new checkpointLocation for each query."""
        return self.root / "queries"

    @property
    def staging(self) -> Path:
        """Return the directory for hard links of an unfinished snapshot, on the same file system as `queries`."""
        return self.root / "staging"

    @property
    def event_log(self) -> Path:
        return (self.session or self.root) / "events"

    @property
    def pools(self) -> Path:
        """Return the file with the pools that Spark's scheduler reads when the session starts."""
        return (self.session or self.root) / "pools.xml"

    @property
    def program(self) -> Path:
        return self.root / "program"

    @property
    def wheels(self) -> Path:
        """Return the directory for copies of wheels as zip files."""
        return (self.session or self.root) / "wheels"

    @property
    def spark(self) -> Path:
        """Return Spark's scratch directory: shuffle files, RocksDB's working copies, warehouse."""
        return (self.session or self.root) / "spark"


def session_settings(work: WorkDirectory, parallelism: int | None, configuration: Mapping[str, str]) -> dict[str, str]:
    """Return every `spark.*` setting of the session. A job cannot override those that snapshots and figures need.

    `parallelism` is the number of state partitions and of cores. For a local master this is the number of threads, for
    a standalone cluster the maximum. Raise InvalidConfiguration if there is no such master.
    """
    cores = parallelism or DEFAULT_PARALLELISM
    deployment = deployment_of(configuration, parallelism=parallelism)
    defaults = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "false",
        # This layout is the safest for snapshots: unique file names, checksums, small increments.
        f"{_STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{_STATE}rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STATE}checkpointFormatVersion": "2",
        HEARTBEAT: heartbeat_of(configuration),
        "spark.python.authenticate.socketTimeout": "180s",  # the default is too short for a loaded machine
        # PySpark binds to "localhost", which some machines cannot resolve. A socket file needs no name.
        "spark.python.unix.domain.socket.enabled": str(not resolves("localhost")).lower(),
    }
    if deployment.has_executors:
        defaults |= {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": hadoop_path(work.pools)}
        variables = JobEnvironment.parse(configuration).variables
        defaults |= {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    if deployment.manager is ClusterManager.STANDALONE:
        defaults["spark.cores.max"] = str(cores)  # without a limit, the first job takes all cores of the cluster
    fixed = {
        MASTER: deployment.master,
        JVM_OPTIONS: f"{_jvm_options(work)} {configuration.get(JVM_OPTIONS, '')}".strip(),
        "spark.sql.warehouse.dir": (work.spark / "warehouse").as_uri(),
        "spark.sql.streaming.stopActiveRunOnRestart": "false",
        # The source of the figures for each subtask (task_metrics.py). The log is rolled, read and deleted as it grows.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": work.event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "10m",
        "spark.eventLog.excludedPatterns": ",".join(_EVENTS_NOT_READ),
        # The metrics of a task have the same values as its accumulators.
        "spark.eventLog.includeTaskMetricsAccumulators": "false",
    }
    if deployment.is_on_this_machine:
        fixed |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
        defaults["spark.local.dir"] = str(work.spark)
    settings = {**defaults, **{k: v for k, v in configuration.items() if k.startswith("spark.")}, **fixed}
    settings["spark.sql.streaming.minBatchesToRetain"] = str(_batches_to_retain(configuration))
    return settings


def _jvm_options(work: WorkDirectory) -> str:
    """Return the JVM's options. A JVM without memory ends at once: if it stayed, the job would not be restarted."""
    log = (Path(__file__).parent / "log4j2.properties").as_uri()
    derby = work.spark / "derby"
    return f"-Dlog4j2.configurationFile={log} -Dderby.system.home={derby} -XX:+UseSerialGC {OUT_OF_MEMORY_OPTION}"


def resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, 0)
    except socket.gaierror:
        return False
    return True


def _batches_to_retain(configuration: Mapping[str, str]) -> int:
    """Return the number of batches to keep, so that Spark does not delete the files of a batch during its snapshot."""
    requested = configuration.get("spark.sql.streaming.minBatchesToRetain", "")
    return max(LEAST_BATCHES_TO_RETAIN, int(requested)) if requested.strip().isdigit() else 100
