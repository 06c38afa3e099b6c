"""Changes the number of state partitions of a restored query before it starts, as Flink does with key group ranges.

Spark rewrites the state in an extra batch, N+1, that reads no input (StreamingCheckpointManager, Classic only). Two
steps are added here. A file sink's log gets an entry for N+1, because Spark's next compaction of the log would fail
without it. Partitions that the state no longer has are removed, because the next snapshot would look for their newest
version.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from checkpointing.model.messages import VertexKind
from checkpointing.spark.query_plan import QueryPlan
from checkpointing.spark.restore import RestoreRefused
from checkpointing.spark.staging import QueryFiles
from checkpointing.spark_internals import (
    FILE_SINK_LOG,
    FILE_SINK_STATUS,
    checkpoint_manager,
    gateway,
    java_session,
    jvm_class,
    jvm_view,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_REPARTITIONS_SINCE = (4, 3)
_SINK_LOG_VERSION = 1
# The pattern of Spark's errors for a state that it can never rewrite.
_CANNOT = re.compile(r"\[(?:STATE_REPARTITION|STATE_REWRITER|STDS)_[\w.]*\] [^\n]*")


class RescaleRefused(RestoreRefused):
    """The number of the state's partitions cannot be changed. The text says why and what to do."""


def requests_partitions(parallelism: int | None, configuration: Mapping[str, str]) -> bool:
    """Return whether a job requests a number of state partitions. Otherwise it keeps that of its state."""
    return parallelism is not None or SHUFFLE_PARTITIONS in configuration


def target_partitions(planned: QueryPlan, restored: Mapping[int, int]) -> int | None:
    """Return the number of partitions for the restored state, or None if it already has what the program requests.

    `planned` is the program's plan for a start without state, so it includes shuffle partitions that the program sets.
    `restored` has the partitions of the restored state by operator.
    """
    for (kind, operator), vertex in planned.by_owner.items():
        differs = restored.get(operator, vertex.parallelism) != vertex.parallelism
        if kind is VertexKind.STATEFUL and operator in planned.keyed and differs:
            return vertex.parallelism
    return None


def rescale(spark: SparkSession, files: QueryFiles, partitions: int) -> int:
    """Move the state in `files.location`, which no query uses, to `partitions` partitions. Return its last batch now.

    A file sink's log lacks that batch; `log_batch_without_output` adds it. Raise RescaleRefused. Raise OSError or
    Spark's own errors if a retry may help.
    """
    batch = _check_possible(files, partitions)
    _check_keyed(files.plan, partitions)
    _check_version(spark, files, partitions)
    _repartition(spark, files, partitions)
    _drop_other_partitions(files, partitions)
    log.info("query %s: its state lies on %d partitions as of batch %d", files.query, partitions, batch + 1)
    return batch + 1


def _check_version(spark: SparkSession, files: QueryFiles, partitions: int) -> None:
    """Raise RescaleRefused for a Spark version before 4.3.

    Spark 4.1 cannot repartition state. Spark 4.2 cannot read the default layout of jobs.
    """
    if tuple(map(int, spark.version.split(".")[:2])) < _REPARTITIONS_SINCE:
        raise RescaleRefused(
            f"The state of query {files.query!r} cannot be put on {partitions} partitions: "
            f"this needs PySpark 4.3 or later, and the job runs with {spark.version}. Leave the parallelism as it was."
        )


def _check_possible(files: QueryFiles, partitions: int) -> int:
    """Return the last batch of the restored state. Raise RescaleRefused if it cannot be rescaled."""
    batch = files.last_commit()
    if batch is None or (files.location / "offsets" / str(batch + 1)).exists():
        raise RescaleRefused(
            f"The state of query {files.query!r} cannot be put on {partitions} partitions: "
            "its last batch is not committed. Restore a completed checkpoint or savepoint."
        )
    provider = _recorded(files.location / "offsets" / str(batch)).get(_PROVIDER, "").rpartition(".")[2]
    if provider and provider != "RocksDBStateStoreProvider":
        raise RescaleRefused(
            f"The state of query {files.query!r} cannot be put on {partitions} partitions: Spark repartitions only "
            f"the state of RocksDBStateStoreProvider, and this query uses {provider}. Leave the parallelism as it was."
        )
    return batch


def _check_keyed(plan: QueryPlan, partitions: int) -> None:
    """Raise RescaleRefused for state without keys. Spark distributes state by the hash of its key and would lose it."""
    for (kind, operator), vertex in plan.by_owner.items():
        if kind is VertexKind.STATEFUL and operator not in plan.keyed:
            raise RescaleRefused(
                f"The state of query {plan.query!r} cannot be put on {partitions} partitions: its operator "
                f"{vertex.name!r} keeps all state in one partition, and Spark would lose it. Leave the parallelism as "
                "it was."
            )


def _recorded(offsets: Path) -> dict[str, str]:
    """Return the settings that Spark stored with a batch."""
    try:
        recorded: dict[str, str] = json.loads(offsets.read_text().splitlines()[1])["conf"]
    except (IndexError, KeyError, ValueError) as error:
        raise RescaleRefused(f"{offsets} has no readable settings of the batch: {error!r}") from error
    return recorded


def _repartition(spark: SparkSession, files: QueryFiles, partitions: int) -> None:
    from pyspark.errors import PySparkException

    try:
        checkpoint_manager(spark).repartition(str(files.location), partitions, True)
    except (PySparkException, Py4JError) as error:
        cannot = _CANNOT.search(str(error))
        if cannot is None:
            raise
        raise RescaleRefused(
            f"The state of query {files.query!r} cannot be put on {partitions} partitions. Spark says: {cannot[0]}"
        ) from error


def _drop_other_partitions(files: QueryFiles, partitions: int) -> None:
    for directory in (files.location / "state").glob("*/*"):
        if directory.name.isdigit() and int(directory.name) >= partitions:
            shutil.rmtree(directory)


def log_batch_without_output(spark: SparkSession, output: str, batch: int) -> None:
    """Add the log entry of Spark's file sink for a batch without rows, compacted where that is due.

    Call it for a query that was rescaled, once its log ends with the batch before.
    """
    path, no_retention = f"{output}/_spark_metadata", jvm_view(spark).scala.Option.empty()
    sink_log = jvm_class(spark, FILE_SINK_LOG)(_SINK_LOG_VERSION, java_session(spark), path, no_retention)
    no_files = gateway().new_array(jvm_class(spark, FILE_SINK_STATUS), 0)
    sink_log.add(batch, no_files)
