"""A spare driver: `python -m checkpointing.spark.spare <spare.json>`, its standard input a socket to its job manager.

  start the JVM and a session → run a small query, so that classes are loaded and code is compiled → ready
                              → take a driver's specification → run as that driver

It has no attempt, no claim and no work until it takes one, and it takes only one. Until then it ends as soon as the job
manager closes the connection, so no spare driver outlives its job manager. The messages are in
jobs/launching/spare_driver.py.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from checkpointing.clock import SystemClock
from checkpointing.jobs.launching.processes import SPEC_NAME
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.jobs.launching.signature import is_applied_later
from checkpointing.jobs.launching.spare_driver import READY, TAKEN
from checkpointing.model.driver_spec import DriverSpec, SpareSpec
from checkpointing.model.messages import MalformedMessage
from checkpointing.spark import jvm
from checkpointing.spark.driver import (
    EXIT_BAD_SPECIFICATION,
    EXIT_DONE,
    EXIT_FAILED,
    Driver,
    exit_process,
    log_to_stderr,
    run_until_ended,
)
from checkpointing.spark.session import start_session
from checkpointing.spark_internals import java_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("checkpointing.spark.spare")

_WARM_UP_S = 60.0
_LOOK_S = 1.0


class JobManagerChannel:
    """The socket. A separate thread reads it, because the end of the job manager must be noticed while Spark starts."""

    def __init__(self, connection: socket.socket, directory: Path, on_hung_up: Callable[[], NoReturn]) -> None:
        self._connection = connection
        self._directory = directory
        self._on_hung_up = on_hung_up
        self._taken: queue.Queue[Path] = queue.Queue()
        threading.Thread(target=self._listen, name="job-manager", daemon=True).start()

    @property
    def has_work(self) -> bool:
        return not self._taken.empty()

    def report_ready(self) -> None:
        """Report that the spare driver is ready. The reading thread notices a closed connection."""
        if not self.has_work:
            log.info("waits for work")
            self._send(READY)

    def work(self, check: Callable[[], None]) -> Path:
        """Return the path of the specification once it has arrived. Call `check` about every second until then."""
        while True:
            try:
                return self._taken.get(timeout=_LOOK_S)
            except queue.Empty:
                check()

    def _listen(self) -> None:
        said = b""
        while not said.endswith(b"\n"):
            try:
                part = self._connection.recv(4096)
            except OSError:
                part = b""
            if not part:
                self._on_hung_up()
            said += part
        self._take(Path(os.fsdecode(said[:-1])))

    def _take(self, path: Path) -> None:
        """Link the specification into this directory, which the command line names, before the attempt starts here."""
        (self._directory / SPEC_NAME).hardlink_to(path)
        self._taken.put(path)
        self._send(TAKEN)

    def _send(self, word: bytes) -> None:
        try:
            self._connection.sendall(word)
        except OSError as error:
            log.info("the job manager does not hear: %s", error)


def main(arguments: list[str]) -> int:
    log_to_stderr()
    try:
        [path] = arguments
        spec = SpareSpec.from_json(json.loads(Path(path).read_text()))
    except (OSError, ValueError, MalformedMessage) as error:
        log.error("a spare's only argument is the path of its specification: %s", error)
        return EXIT_BAD_SPECIFICATION
    directory = Path(spec.directory)
    channel = JobManagerChannel(_standard_input(), directory, lambda: _exit_after_hang_up(directory))
    work = WorkDirectory(directory, session=directory)
    settings = session_settings(work, spec.parallelism, spec.configuration)
    open_session = _opened(settings, work, channel)
    channel.report_ready()
    return _be_driver(channel.work(_check_jvm), directory, settings, open_session)


def _opened(settings: Mapping[str, str], work: WorkDirectory, channel: JobManagerChannel) -> Callable[[], SparkSession]:
    """Return a function that returns the session.

    If the start failed and an attempt waits, the function raises the error.
    """
    try:
        spark = start_session("spare", settings, work)
        if not channel.has_work:
            warm_up(spark, work.spark / "warm-up")
    except Exception as error:
        if not channel.has_work:
            log.exception("the session does not start")
            exit_process(EXIT_FAILED)
        failure = error

        def fail() -> SparkSession:
            raise failure

        return fail
    return lambda: spark


def _be_driver(
    path: Path, directory: Path, settings: Mapping[str, str], open_session: Callable[[], SparkSession]
) -> int:
    try:
        spec = DriverSpec.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, MalformedMessage) as error:
        log.error("the specification of the attempt cannot be read: %s", error)
        return EXIT_BAD_SPECIFICATION
    log.info("taken by attempt %d of job %s", spec.attempt, spec.job_id)
    os.chdir(spec.work_directory)
    work = WorkDirectory(Path(spec.work_directory), session=directory)
    for place in (work.queries, work.staging):
        place.mkdir(parents=True, exist_ok=True)

    def adapted(spec: DriverSpec, work: WorkDirectory) -> SparkSession:
        spark = open_session()
        adapt(spark, spec.job_name, settings, session_settings(work, spec.parallelism, spec.configuration))
        return spark

    code = run_until_ended(Driver(spec, SystemClock(), work, adapted))
    for place in (work.spark, work.event_log):
        shutil.rmtree(place, ignore_errors=True)
    return code


def adapt(spark: SparkSession, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Adapt a session that was started with the settings `before` to the job `name` with the settings `after`."""
    for key in filter(is_applied_later, before.keys() - after.keys()):
        spark.conf.unset(key)
    for key in filter(is_applied_later, after):
        if before.get(key) != after[key]:
            spark.conf.set(key, after[key])
    spark.sparkContext.appName = name
    java_context(spark.sparkContext).conf().set("spark.app.name", name)  # getConf() is a copy


def warm_up(spark: SparkSession, directory: Path) -> None:
    """Run two batches of a small stateful query: half of a first batch is loading classes and compiling code."""
    second_batch = threading.Event()

    def collect(frame: Any, batch: int) -> None:
        frame.collect()
        if batch > 0:
            second_batch.set()

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = rows.selectExpr("value % 3 AS key").groupBy("key").count()
    writer = counts.writeStream.outputMode("update").foreachBatch(collect)
    query = writer.option("checkpointLocation", str(directory)).start()
    second_batch.wait(_WARM_UP_S)
    query.stop()
    shutil.rmtree(directory, ignore_errors=True)


def _check_jvm() -> None:
    code = jvm.exit_code(0)
    if code is not None:
        log.error("the spare's JVM has ended (%d)", code)
        exit_process(EXIT_FAILED)


def _exit_after_hang_up(directory: Path) -> NoReturn:
    log.info("the job manager hung up")
    jvm.kill()
    shutil.rmtree(directory, ignore_errors=True)
    exit_process(EXIT_DONE)


def _standard_input() -> socket.socket:
    """Return the socket. Started processes must not inherit it, so that the job manager sees it close."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return connection


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
