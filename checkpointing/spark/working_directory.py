"""The directory that relative paths of a program are below: the job's `waymark.directory`.

Without that key, or with an empty one, it is the attempt's own directory, which is removed some attempts later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from checkpointing.jobs.known_keys import DIRECTORY
from checkpointing.spark.program import ProgramError
from checkpointing.spark_internals import hadoop_configuration, jvm_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def enter(configuration: Mapping[str, str], spark: SparkSession) -> None:
    """Make the directory that of this process, and of Spark's local file system; ProgramError when it is none."""
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
            "there, or set the key to another one, or to nothing if all paths are absolute."
        ) from error
    hadoop = jvm_view(spark).org.apache.hadoop.fs
    # A spare driver's JVM was started elsewhere, and a JVM cannot change its directory.
    local = hadoop.FileSystem.getLocal(hadoop_configuration(spark))
    local.setWorkingDirectory(hadoop.Path(directory.as_uri()))


def refuse_relative(query: str, path: str, configuration: Mapping[str, str], spark: SparkSession) -> None:
    """Raise ProgramError if the file sink's `path` would be another directory for each attempt."""
    if configuration.get(DIRECTORY) or ":" in path or path.startswith("/"):
        return
    if str(hadoop_configuration(spark).get("fs.defaultFS")).startswith("file:"):
        raise ProgramError(
            f"Query {query!r} writes to {path!r}, a relative path, and each attempt of the job has a directory of its "
            f"own. Use an absolute path, or set {DIRECTORY} to the directory that relative paths are below."
        )
