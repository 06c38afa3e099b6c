"""One query of the job in this process: plan it, start it, observe it, and end it between two batches or at once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from checkpointing.jobs.restore import BATCH_NUMBERS
from checkpointing.model.messages import AfterRestore, Channel, ExceptionInfo
from checkpointing.sinks.context import OutputTaken
from checkpointing.spark import failure
from checkpointing.spark.jvm import hadoop_path
from checkpointing.spark.lost_input import lost_input_message
from checkpointing.spark.plan import Sink, function_of, output_mode, session_of, start
from checkpointing.spark.program import ProgramError
from checkpointing.spark.query_plan import QueryPlan
from checkpointing.spark.sink_output import SinkOutput
from checkpointing.spark.staging import QueryFiles
from checkpointing.spark.state_mismatch import state_mismatch_message
from checkpointing.spark.status_stores import task_progress
from checkpointing.spark_internals import java_query, stream_execution, terminated

log = logging.getLogger(__name__)

_LOCATION_SETTING = "spark.sql.streaming.checkpointLocation"
# A restart cannot fix these errors: another job owns the sink's target, or a function does something forbidden.
_PERMANENT = (OutputTaken, ProgramError)
_OF_FUNCTIONS = ("foreachbatch", "foreach")
_HOLDS_NOTHING = ("memory", "console", "noop")


def after_restore(writer: Any, sink: Sink, *, exactly_once: bool = True) -> AfterRestore:
    """Return what happens to a query's output after the restore of an older state, by its sink (decision 132).

    The batches after the restored state are computed again, and written with new numbers, so no sink loses a row. A
    foreachBatch function with the attribute `goes_back` declares that it is exact. Unless the job runs `exactly_once`,
    the rows of Spark's file sink stay.
    """
    is_rewound = sink.path is not None and exactly_once
    if is_rewound or getattr(function_of(writer), "goes_back", False):
        return AfterRestore.GOES_BACK
    if sink.format.lower() in _HOLDS_NOTHING or str(output_mode(writer)).lower() == "complete":
        return AfterRestore.REPLACED
    return AfterRestore.WRITTEN_AGAIN


def repeats_numbers(query: str, sink: Sink, options: Mapping[str, str]) -> bool:
    """Return whether a restore keeps the query's batch numbers, for a function that replaces the rows of a number.

    Raise ProgramError if the option is not possible.
    """
    requested = options.get(BATCH_NUMBERS)
    if requested is None:
        return False
    if requested != "repeat":
        raise ProgramError(f"{BATCH_NUMBERS}: {requested!r} of query {query!r} is not allowed; only repeat is allowed")
    if sink.format.lower() not in _OF_FUNCTIONS:
        raise ProgramError(
            f"{BATCH_NUMBERS}: {requested!r} is not possible for query {query!r}, which writes to {sink.format}: its "
            "sink would skip rows after a restore. The option is for foreachBatch and foreach."
        )
    return True


def own_location(writer: Any, options: Mapping[str, str]) -> str | None:
    """Return where Spark would keep the query's state, or None if it would be a place that a restart does not find.

    The driver keeps the state in its own checkpointLocation instead.
    """
    location = options.get("checkpointlocation")
    root, name = session_of(writer).conf.get(_LOCATION_SETTING, None), options.get("queryname")
    return location or (f"{root}/{name}" if root and name else None)


@dataclass(frozen=True)
class PlannedQuery:
    """A query ready to start: its writer has a name and a checkpointLocation. `inputs`: the channels that it reads.

    `own_location` is the checkpointLocation that the program requested.
    """

    writer: Any
    plan: QueryPlan
    location: Path
    sink: Sink
    inputs: tuple[Channel, ...] = ()
    is_continuous: bool = False
    own_location: str | None = None

    @property
    def name(self) -> str:
        return self.plan.query

    @property
    def repeats_numbers(self) -> bool:
        """Return whether the query's batches keep their numbers after an older state is restored."""
        return self.sink.repeats_numbers

    @property
    def writes_again(self) -> bool:
        """Return whether the query's sink gets the rows of batches after a restored state a second time."""
        return self.sink.after_restore is AfterRestore.WRITTEN_AGAIN

    @cached_property
    def output(self) -> SinkOutput | None:
        """Return the output directory of Spark's file sink, or None for any other sink. Raise OSError."""
        if self.sink.path is None:
            return None
        copies = self.location.with_name(f"{self.location.name}.sink-log")
        return SinkOutput(session_of(self.writer), self.sink.path, copies)

    @property
    def files(self) -> QueryFiles:
        return QueryFiles(self.plan, self.location, self.output, self.inputs, is_continuous=self.is_continuous)


def refuse_unless_empty(query: PlannedQuery) -> None:
    """Raise ProgramError if the query has run at its own location: without that state it would read its input again."""
    if query.own_location is None:
        return
    commits = _commits(session_of(query.writer), query.own_location)
    if commits:
        raise ProgramError(
            f"Query {query.name!r} has its own checkpointLocation {query.own_location}, which has {commits} committed "
            "batches, but the job starts without state. To continue from there, submit the job with "
            f"--from-checkpoint {query.name}={query.own_location}; to start without state, remove the option."
        )
    log.info("query %s: its state is in the job's checkpoints, not in %s", query.name, query.own_location)


def _commits(spark: Any, location: str) -> int:
    path, file_system = hadoop_path(spark, location.rstrip("/") + "/commits")
    if not file_system.exists(path):
        return 0
    names = (str(status.getPath().getName()) for status in file_system.listStatus(path))
    return sum(1 for name in names if re.fullmatch(r"\d+", name))


class RunningQuery:
    """A query that runs. Used by one thread. `start` may be called again after the query has ended.

    `function_ticks` returns the processor time that the foreachBatch function has used, `function_error` the exception
    that it raised.
    """

    def __init__(self, planned: PlannedQuery) -> None:
        self.planned = planned
        self.files = planned.files
        self.function_ticks: Callable[[], int] = lambda: 0
        self.function_error: Callable[[], Exception | None] = lambda: None
        self._query: Any = None
        self._last_epoch: int | None = None

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def spark_query(self) -> Any:
        """Return PySpark's StreamingQuery of the newest start."""
        return self._query

    @property
    def spark_id(self) -> str:
        """Return the ID in Spark's checkpointLocation, which is the same after restarts."""
        return str(self._query.id)

    @property
    def run_id(self) -> str:
        """Return the ID of this start of the query."""
        return str(self._query.runId)

    def start(self) -> None:
        """Start the query. Return once Spark has accepted it; the first batch may take any time."""
        self._last_epoch = None
        self._query = start(self.planned.writer)

    @property
    def is_active(self) -> bool:
        return bool(self._query.isActive)

    def failure(self, timestamp: int) -> ExceptionInfo | None:
        """Return why the query ended, or None if it is active or ended by itself or on request."""
        found = java_query(self._query).exception()
        if not found.isDefined():
            return None
        info = failure.of_query(self.name, found.get(), timestamp)
        words = state_mismatch_message(info.message, self.planned.plan, self.planned.location) or lost_input_message(
            self.name, info.name, info.message
        )
        if words is not None:
            return replace(info, message=words, recoverable=False)
        return replace(info, recoverable=False) if isinstance(self.function_error(), _PERMANENT) else info

    def doing(self) -> str:
        """Return Spark's text for the query's current activity: "Processing new data", "Waiting for data to arrive"."""
        return str(self._query.status["message"])

    def progress(self) -> object:
        """Return a value that changes while the batch computes: the figures of its tasks and of its function."""
        return (*task_progress(session_of(self.planned.writer), self.run_id), self.function_ticks())

    def end_after_batch(self) -> None:
        """Let the running batch finish and commit, and start no other. See `has_ended`.

        Spark's own stop() interrupts the batch, whose output may then be in the sink without being committed. The
        stream's loop checks its state between batches, so only that state is set here. A continuous query has no such
        check and is stopped right after an epoch's commit.
        """
        if self.files.is_continuous:
            self._last_epoch = self.files.next_boundary()
            return
        stream_execution(self._query).state().set(terminated(session_of(self.planned.writer)))

    def has_ended(self) -> bool:
        """Return True after `end_after_batch` if no batch runs or will run. Wake a loop that waits for its trigger."""
        if self._is_in_batch():
            return False
        self._query.stop()
        return True

    def _is_in_batch(self) -> bool:
        if self.files.is_continuous and self._last_epoch is not None:
            return self.is_active and not self.files.has_committed(self._last_epoch)
        thread = stream_execution(self._query).queryExecutionThread()
        return bool(thread.isAlive() and self._query.status["isTriggerActive"])

    def stop(self) -> None:
        """Stop the query and interrupt its batch."""
        self._query.stop()
