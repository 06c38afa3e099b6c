"""A small SparkSession for callers without a session: readers of snapshots, and the archive of the history."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from checkpointing.java import find_java
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.spark.session import start_session
from checkpointing.spark_internals import active_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "spark.driver.memory"


def existing_or_new_session(
    spark: SparkSession | None, configuration: Mapping[str, str] | None = None
) -> AbstractContextManager[SparkSession]:
    """Return the caller's or the process's session, which stays open, or else a small temporary one.

    `configuration` has settings of the temporary session, such as `spark.master`.
    """
    from pyspark.sql import SparkSession

    if spark is None and active_context() is not None:  # a process can have only one Spark context
        spark = SparkSession.builder.getOrCreate()
    return reading_session(configuration=configuration) if spark is None else nullcontext(spark)


@contextmanager
def reading_session(
    parallelism: int = 2, memory: str = "512m", configuration: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a new session. Stop it and remove its files at the end. Raise JavaNotFound.

    The start takes seconds, so use one session for several reads.
    """
    with tempfile.TemporaryDirectory(prefix="waymark-spark-") as directory:
        work = WorkDirectory(Path(directory))
        os.environ["JAVA_HOME"] = str(find_java(os.environ, Path(directory) / "java").home)
        settings = session_settings(work, parallelism, {MEMORY: memory, **(configuration or {})})
        session = start_session("state", {**settings, "spark.eventLog.enabled": "false"}, work)
        try:
            yield session
        finally:
            session.stop()
