"""Starts the driver's SparkSession and enters the directory for relative paths of the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from checkpointing import spark_internals
from checkpointing.jobs.known_keys import DIRECTORY
from checkpointing.jobs.launching.deployment import MASTER, deployment_of
from checkpointing.jobs.launching.python import supported_pyspark
from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.jobs.wheels import wheels_as_zips
from checkpointing.spark import jvm
from checkpointing.spark.executor_uploads import POOLS
from checkpointing.spark.program import ProgramError
from checkpointing.spark_internals import hadoop_configuration, jvm_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_session(name: str, settings: Mapping[str, str], work: WorkDirectory) -> SparkSession:
    """Start Spark. Raise UnsupportedPySpark, and what `jvm.launch` and Spark raise."""
    for directory in (work.queries, work.staging, work.event_log, work.spark):
        directory.mkdir(parents=True, exist_ok=True)
    work.event_log.chmod(0o700)  # the events repeat the configuration
    work.pools.write_text(POOLS)
    if not deployment_of(settings).driver_is_in_the_cluster:
        settings = wheels_as_zips(settings, work.wheels)
    _prepare_environment(settings)
    jvm.launch(name, settings, work.event_log.parent)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    written = jvm.errors_size()
    try:
        session = builder.getOrCreate()
    except Exception as error:
        given_up = jvm.application_failure(settings[MASTER], written)
        if given_up is not None:
            raise given_up from error
        raise
    spark_internals.check(session, supported_pyspark())
    return session


def _prepare_environment(settings: Mapping[str, str]) -> None:
    """Set the environment for Spark. The executors run the driver's own Python unless the job names another one."""
    python = settings.get("spark.pyspark.python")
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if deployment_of(settings).is_on_this_machine:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def enter_directory(configuration: Mapping[str, str], spark: SparkSession) -> None:
    """Make the job's `waymark.directory` the current one of this process and of Spark's local file system.

    Without that key, or with an empty one, the current directory is the attempt's own, which is removed some attempts
    later. Raise ProgramError.
    """
    if not configuration.get(DIRECTORY):
        return
    directory = Path(configuration[DIRECTORY])
    if not directory.is_absolute():
        raise ProgramError(f"{DIRECTORY}: {str(directory)!r} is not allowed; an absolute path is expected")
    try:
        os.chdir(directory)
    except OSError as error:
        raise ProgramError(
            f"{DIRECTORY}: {directory} cannot be used where the driver runs ({error.strerror}). Create the directory "
            "there, or set the key to another directory, or remove the key if all paths are absolute."
        ) from error
    hadoop = jvm_view(spark).org.apache.hadoop.fs
    # The JVM of a spare driver started in another directory, and a JVM cannot change its directory.
    local = hadoop.FileSystem.getLocal(hadoop_configuration(spark))
    local.setWorkingDirectory(hadoop.Path(directory.as_uri()))


def refuse_relative(query: str, path: str, configuration: Mapping[str, str], spark: SparkSession) -> None:
    """Raise ProgramError if the file sink's `path` would be another directory for each attempt."""
    if configuration.get(DIRECTORY) or ":" in path or path.startswith("/"):
        return
    if str(hadoop_configuration(spark).get("fs.defaultFS")).startswith("file:"):
        raise ProgramError(
            f"Query {query!r} writes to {path!r}, a relative path, and each attempt of the job has its own "
            f"directory. Use an absolute path, or set {DIRECTORY} to the directory that contains relative paths."
        )
