"""A Spark session for tests, with the driver's own settings."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from checkpointing.spark.session import WorkDirectory, session_settings, start_session

PARTITIONS = 2


@contextlib.contextmanager
def spark_session(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """For one module at most: a process has one SparkContext, and the next module's end would stop it.

    Everything it writes is below `directory`. No event log: who needs one sets `spark.eventLog.enabled`.
    """
    work = WorkDirectory(directory)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    ours = {**session_settings(work, PARTITIONS, {}), "spark.eventLog.enabled": "false"}
    session = start_session(directory.name, {**ours, **(settings or {})}, work)
    try:
        yield session
    finally:
        session.stop()
