"""The options of spark-submit as settings of a job, so that a line for spark-submit is nearly one for `submit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checkpointing.storage.locations import as_absolute

# Source: SparkSubmitArguments of Spark 4, which reads and writes the same settings.
KEYS = {
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--py-files": "spark.submit.pyFiles",
    "--jars": "spark.jars",
    "--packages": "spark.jars.packages",
    "--exclude-packages": "spark.jars.excludes",
    "--repositories": "spark.jars.repositories",
    "--files": "spark.files",
    "--archives": "spark.archives",
    "--driver-memory": "spark.driver.memory",
    "--driver-cores": "spark.driver.cores",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
    "--total-executor-cores": "spark.cores.max",
    "--queue": "spark.yarn.queue",
    "--principal": "spark.kerberos.principal",
    "--keytab": "spark.kerberos.keytab",
}
_FILES = ("--py-files", "--jars", "--files", "--archives")


def settings_of(given: Mapping[str, str]) -> Iterator[str]:
    """Yield `KEY=VALUE` for each option in `given`. Relative files are below the current directory."""
    for option, value in given.items():
        if option in _FILES:
            value = ",".join(as_absolute(file.strip()) for file in value.split(",") if file.strip())
        yield f"{KEYS[option]}={value}"
