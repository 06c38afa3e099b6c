"""Replaces PySpark's methods to start, await and stop queries and to stop Spark, so that the driver performs them.

Every patch of PySpark's public interface is here. The patches stay until the process ends, so that the driver knows
every query that runs.
"""

from __future__ import annotations

import inspect
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryManager

from checkpointing.spark.plan import keep_pool, query_name, set_function, set_table, writer_options
from checkpointing.spark.program import ProgramError
from checkpointing.spark.program_run import ProgramRun
from checkpointing.spark_internals import builder_options, first_session, java_query

if TYPE_CHECKING:
    from checkpointing.spark.running_query import RunningQuery

log = logging.getLogger(__name__)

# Settings that snapshots need, and settings that belong to the job, not to the program.
_KEPT = ("spark.sql.streaming.minBatchesToRetain", "spark.sql.streaming.stopActiveRunOnRestart")
_THE_JOBS = ("spark.master", "spark.app.name")
_CHECKPOINTS = "spark.sql.streaming.checkpointLocation"

# The patched methods use the newest run. A process has only one run, except in tests.
_runs: list[ProgramRun] = []


class ManagedQuery(StreamingQuery):  # type: ignore[misc]  # PySpark's is untyped
    """The program's view of a query that the driver runs.

    The methods that are not here are PySpark's own. They wait until the driver has started the query, and then use it.
    """

    running: RunningQuery | None = None
    has_ended = False
    is_forgotten = False

    def __init__(self, run: ProgramRun, writer: DataStreamWriter) -> None:
        self._run = run
        self.writer = writer
        self._name = query_name(writer_options(writer), len(run.queries))

    @property
    def _jsq(self) -> Any:
        self._run.wait_until_begun()
        if self.running is None:
            raise RuntimeError(f"query {self._name} is not running")
        return java_query(self.running.spark_query)

    @property
    def name(self) -> str:
        return self._name

    @property
    def id(self) -> str:
        return self._run.id_of(self._name) or str(super().id)

    @property
    def isActive(self) -> bool:  # noqa: N802 - PySpark's name
        self._run.wait_until_begun()
        return not self.has_ended

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Return when the query has ended by itself. A query that fails ends the attempt and the program."""
        return _await(self._run, lambda: self.has_ended, timeout)

    def stop(self) -> None:
        super().stop()
        self._run.note_ended(self._name)


def take_over(run: ProgramRun) -> None:
    """Pass every query that is started from now on to `run`. Raise ProgramError if this PySpark has other methods."""
    _check(pyspark.__version__)
    _runs.append(run)
    for (owner, name), replacement in _REPLACEMENTS.items():
        setattr(owner, name, replacement)


def restore_methods() -> None:
    """Restore PySpark's own methods. For tests only."""
    _runs.clear()
    for (owner, name), own in _ORIGINALS.items():
        setattr(owner, name, own)


def _check(version: str) -> None:
    for (owner, name), replacement in _REPLACEMENTS.items():
        if _shape(_ORIGINALS.get((owner, name))) != _shape(replacement):
            raise ProgramError(f"PySpark {version} is not supported: its {owner.__qualname__}.{name} has changed")


def _shape(method: Any) -> object:
    if method is None or isinstance(method, property):
        return type(method)
    return tuple(inspect.signature(method).parameters)


def _taken() -> ProgramRun:
    return _runs[-1]


# --- starting --------------------------------------------------------------------------------------------------------


def _start(
    self: DataStreamWriter,
    path: str | None = None,
    format: str | None = None,  # noqa: A002 - PySpark's name, like those that follow
    outputMode: str | None = None,  # noqa: N803
    partitionBy: Any = None,  # noqa: N803
    queryName: str | None = None,  # noqa: N803
    **options: Any,
) -> StreamingQuery:
    if path is not None:
        options["path"] = path
    return _register(self, format, outputMode, partitionBy, queryName, options)


def _to_table(
    self: DataStreamWriter,
    tableName: str,  # noqa: N803
    format: str | None = None,  # noqa: A002
    outputMode: str | None = None,  # noqa: N803
    partitionBy: Any = None,  # noqa: N803
    queryName: str | None = None,  # noqa: N803
    **options: Any,
) -> StreamingQuery:
    set_table(self, tableName)
    return _register(self, format, outputMode, partitionBy, queryName, options)


def _register(
    writer: DataStreamWriter, source: str | None, mode: str | None, columns: Any, name: str | None, options: Any
) -> StreamingQuery:
    writer.options(**options)
    for given, setter in (
        (mode, writer.outputMode), (columns, writer.partitionBy), (source, writer.format), (name, writer.queryName),
    ):  # fmt: skip
        if given is not None:
            setter(given)
    keep_pool(writer)
    query = ManagedQuery(_taken(), writer)
    _taken().add(query)
    log.info("the program starts query %s, which the driver will run", query.name)
    return query


def _foreach_batch(self: DataStreamWriter, func: Callable[[Any, int], None]) -> DataStreamWriter:
    set_function(self, func)
    made: DataStreamWriter = _ORIGINALS[DataStreamWriter, "foreachBatch"](self, func)
    return made


# --- waiting ---------------------------------------------------------------------------------------------------------


def _await(run: ProgramRun, is_over: Callable[[], bool], timeout: float | None) -> bool | None:
    if timeout is not None and (not isinstance(timeout, int | float) or timeout <= 0):
        raise ValueError(f"timeout: {timeout!r} is not allowed; a positive number of seconds is expected")
    run.settle()
    ended = run.wait_for(is_over, timeout)
    return None if timeout is None else ended


def _queries() -> list[ManagedQuery]:
    return [query for query in _taken().queries if isinstance(query, ManagedQuery)]


def _active(self: StreamingQueryManager) -> list[StreamingQuery]:
    """Return the active queries: handles of queries that Waymark starts, and all others as Spark returns them."""
    handles = [query for query in _queries() if query.isActive]
    others = [_handle(query) for query in _ORIGINALS[StreamingQueryManager, "active"].fget(self)]
    return [*handles, *(query for query in others if not isinstance(query, ManagedQuery))]


def _get(self: StreamingQueryManager, id: str) -> StreamingQuery | None:  # noqa: A002 - PySpark's name
    found = _ORIGINALS[StreamingQueryManager, "get"](self, id)
    return None if found is None else _handle(found)


def _handle(query: StreamingQuery) -> StreamingQuery:
    own = (each for each in _queries() if each.running is not None and each.running.spark_id == query.id)
    return next(own, query)


def _await_any(self: StreamingQueryManager, timeout: float | None = None) -> bool | None:
    return _await(_taken(), lambda: any(query.has_ended and not query.is_forgotten for query in _queries()), timeout)


def _reset_terminated(self: StreamingQueryManager) -> None:
    for query in _queries():
        query.is_forgotten = query.has_ended


# --- the session -----------------------------------------------------------------------------------------------------


def _get_or_create(self: SparkSession.Builder) -> SparkSession:
    """Return the driver's session to the program, with the program's settings that may still change."""
    options, session = builder_options(self), first_session()
    if session is not None:
        for name in options:
            _warn_of(session, name)
    for name in (*_KEPT, *_THE_JOBS):
        options.pop(name, None)
    made: SparkSession = _ORIGINALS[SparkSession.Builder, "getOrCreate"](self)
    return made


def _warn_of(session: SparkSession, name: str) -> None:
    if name in _KEPT:
        log.warning("the program's setting %s is not applied: the job's snapshots rest on it", name)
    elif name == "spark.master":
        log.warning("the program's master is not used: the job's setting spark.master says where it runs")
    elif name.startswith("spark.") and name not in (_CHECKPOINTS, *_THE_JOBS) and not session.conf.isModifiable(name):
        log.warning("the program's setting %s comes too late for a running session; give it to the job", name)


def _stop_session(self: SparkSession) -> None:
    if not _stop_queries():
        _ORIGINALS[SparkSession, "stop"](self)


def _stop_context(self: SparkContext) -> None:
    if not _stop_queries():
        _ORIGINALS[SparkContext, "stop"](self)


def _stop_queries() -> bool:
    """Stop the running queries, as Spark's own stop() does. Return False if the caller is not the program."""
    if not _taken().is_current:
        return False
    for query in _queries():
        if query.running is not None and not query.has_ended:
            query.stop()
    log.info("the program calls stop(); the driver stops Spark when the job ends")
    return True


def _signal(signalnum: int, handler: Any) -> Any:
    """Ignore the program's signal handlers, because the driver handles signals.

    Python calls this on the main thread only.
    """
    if not _taken().is_current:
        return _ORIGINALS[signal, "signal"](signalnum, handler)
    log.warning("the program's handler of %s is not used: the driver handles signals", signal.Signals(signalnum).name)
    return signal.getsignal(signalnum)


_REPLACEMENTS: dict[tuple[Any, str], Any] = {
    (DataStreamWriter, "start"): _start,
    (DataStreamWriter, "toTable"): _to_table,
    (DataStreamWriter, "foreachBatch"): _foreach_batch,
    (StreamingQueryManager, "active"): property(_active),
    (StreamingQueryManager, "get"): _get,
    (StreamingQueryManager, "awaitAnyTermination"): _await_any,
    (StreamingQueryManager, "resetTerminated"): _reset_terminated,
    (SparkSession.Builder, "getOrCreate"): _get_or_create,
    (SparkSession, "stop"): _stop_session,
    (SparkContext, "stop"): _stop_context,
    (signal, "signal"): _signal,
}
_ORIGINALS: dict[tuple[Any, str], Any] = {
    (owner, name): inspect.getattr_static(owner, name, None) for owner, name in _REPLACEMENTS
}
