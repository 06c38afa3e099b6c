"""The Spark session of a test process, with the driver's own settings."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.spark.session import start_session

PARTITIONS = 2
_ROOT = Path(__file__).parents[1]
_STANDALONE = {"spark.master": "spark://127.0.0.1:7077"}


@contextlib.contextmanager
def spark_session(directory: Path) -> Iterator[Any]:
    """Start a session and stop it at the end. Tests share it, because a process can have only one SparkContext.

    It writes only below `directory`. It differs from a local driver in settings that cannot change at runtime: no event
    log, state maintenance every 300 ms, and the scheduler pools of a driver with executors.
    """
    work = WorkDirectory(directory)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Spark's Python workers must be able to import the modules of a program.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    cluster = session_settings(work, PARTITIONS, _STANDALONE)
    ours = {
        **session_settings(work, PARTITIONS, {}),
        **{name: value for name, value in cluster.items() if name.startswith("spark.scheduler.")},
        "spark.eventLog.enabled": "false",
        "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
    }
    session = start_session(directory.name, ours, work)
    try:
        yield session
    finally:
        session.stop()


@contextlib.contextmanager
def put_back(spark: Any) -> Iterator[None]:
    """At the end of the block, stop all queries and restore every setting."""
    before = dict(spark.conf.getAll)
    try:
        yield
    finally:
        for query in spark.streams.active:
            query.stop()
        for name in spark.conf.getAll.keys() - before.keys():
            spark.conf.unset(name)
        for name, value in before.items():
            if spark.conf.get(name) != value:
                spark.conf.set(name, value)
