"""Private API of PySpark and Spark. Other code uses it only through this module. `check` reports missing parts.

Callers pass PySpark's public objects. Methods of the Java objects that they get are checked as far as `_JVM` lists
them. Formats of files are elsewhere: those of checkpoint locations in `checkpoint_location`, that of the event log in
`spark/task_metrics.py`. This module is in the lowest layer because operator state, which programs import, needs it.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.types import DataType

_STREAMING = "org.apache.spark.sql.execution.streaming"
_SESSION = "org.apache.spark.sql.classic.SparkSession"
_TERMINATED = f"{_STREAMING}.runtime.TERMINATED$"
# Classes for `jvm_class`: Spark uses them for itself, and PySpark has none of them.
COMPRESSION_CODEC = "org.apache.spark.io.CompressionCodec"
FILE_SINK_LOG = f"{_STREAMING}.sinks.FileStreamSinkLog"
FILE_SINK_STATUS = f"{_STREAMING}.sinks.SinkFileStatus"
INCREMENTAL_EXECUTION = f"{_STREAMING}.runtime.IncrementalExecution"
OFFSETS_METADATA = f"{_STREAMING}.checkpointing.OffsetSeqMetadata"
PYTHON_SQL_UTILS = "org.apache.spark.sql.api.python.PythonSQLUtils"
STAGE_STATUS = "org.apache.spark.status.api.v1.StageStatus"
WATERMARK_PROPAGATOR = f"{_STREAMING}.runtime.WatermarkPropagator"
_PACKAGES_SINCE_4_1 = re.compile(r"\.streaming\.(runtime|checkpointing|sinks)\.")


# --- the process of the JVM ------------------------------------------------------------------------------------------


def start_jvm() -> None:
    """Start the JVM without a SparkContext. SparkContext(), the public way, shows every setting on the command line."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()


def gateway() -> Any:
    """Return py4j's gateway, or None before the JVM runs. PySpark has no public access to it."""
    module = sys.modules.get("pyspark.core.context")
    return module.SparkContext._gateway if module is not None else None


def jvm_process() -> subprocess.Popen[bytes] | None:
    """Return the JVM's process, or None if this process did not start it. PySpark stores it in the gateway."""
    process: subprocess.Popen[bytes] | None = getattr(gateway(), "proc", None)
    return process


# --- the context and the session -------------------------------------------------------------------------------------


def active_context() -> SparkContext | None:
    """Return the process's SparkContext, if any. The public SparkContext.getOrCreate() would start one."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def first_session() -> SparkSession | None:
    """Return the process's first session, if any. The public SparkSession.getActiveSession() is that of a thread."""
    from pyspark.sql import SparkSession

    return SparkSession._instantiatedSession


def builder_options(builder: SparkSession.Builder) -> dict[str, Any]:
    """Return the settings of a session's builder, which can be changed. The public methods only add settings."""
    options: dict[str, Any] = builder._options
    return options


def jvm_view(spark: SparkSession) -> Any:
    """Return py4j's view of the JVM, for classes without a Python side, such as Hadoop's and Java's own."""
    return spark._jvm


def jvm_class(spark: SparkSession, name: str) -> Any:
    """Return one of Spark's own classes, by its full name in Spark 4.1 and later.

    In Spark 4.0 the classes of streaming's packages `runtime`, `checkpointing` and `sinks` are in one package.
    """
    found = getattr(jvm_view(spark), name)
    return getattr(jvm_view(spark), _before_4_1(name)) if isinstance(found, JavaPackage) else found


def java_context(context: SparkContext) -> Any:
    """Return Scala's SparkContext, or None after Python's was stopped. Python's lacks everything that is used here."""
    java = context._jsc
    return java.sc() if java is not None else None


def java_session(spark: SparkSession) -> Any:
    """Return Scala's SparkSession. Its state, and a clone with separate settings, have no Python side."""
    return spark._jsparkSession


def activate(spark: SparkSession) -> None:
    """Make the session that of this thread. PySpark does this only when it creates a session or a DataFrame."""
    jvm_class(spark, _SESSION).setActiveSession(java_session(spark))


def hadoop_configuration(spark: SparkSession) -> Any:
    """Return Hadoop's configuration with the session's settings. Hadoop has no Python side."""
    return java_session(spark).sessionState().newHadoopConf()


def status_store(spark: SparkSession) -> Any:
    """Return Spark's store with executors, stages and tasks.

    The public status tracker has neither descriptions nor executors, and the REST API needs Spark's UI.
    """
    return java_context(spark.sparkContext).statusStore()


def sql_status_store(spark: SparkSession) -> Any:
    """Return Spark's store with SQL executions. It is public only in Spark's UI."""
    return java_session(spark).sharedState().statusStore()


def checkpoint_manager(spark: SparkSession) -> Any:
    """Return the object that repartitions state. It is Spark's only way to do so, and not public yet."""
    return spark._streamingCheckpointManager


# --- DataFrames, writers and queries ---------------------------------------------------------------------------------


def query_execution(frame: DataFrame) -> Any:
    """Return the plans of a DataFrame. `explain`, which is public, prints them."""
    return frame._jdf.queryExecution()


def frame_of(writer: DataStreamWriter) -> DataFrame:
    """Return the DataFrame of the writer, for which the writer has no public method."""
    return writer._df


def writer_field(writer: DataStreamWriter, name: str) -> Any:
    """Return a field of Scala's DataStreamWriter, which has setters only."""
    java = writer._jwrite
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)


def start_query(writer: DataStreamWriter, table: str | None) -> StreamingQuery:
    """Start the query, which writes to `table` if given. PySpark's own `start` and `toTable` may be replaced."""
    java = writer._jwrite
    return writer._sq(java.start() if table is None else java.toTable(table))


def java_query(query: StreamingQuery) -> Any:
    """Return Scala's StreamingQuery. Python's has only the text of an exception, not its causes."""
    return query._jsq


def stream_execution(query: StreamingQuery) -> Any:
    """Return the loop that runs the query's batches. StreamingQuery hides its thread and its state."""
    return java_query(query).streamingQuery()


def active_stream(spark: SparkSession, query_id: str) -> Any:
    """Return the loop of a query that runs in any session, or None. `spark.streams` knows one session's queries."""
    active = java_session(spark).sharedState().activeStreamingQueries()
    return active.get(jvm_view(spark).java.util.UUID.fromString(query_id))


def terminated(spark: SparkSession) -> Any:
    """Return the state of a stream that begins no further batch. The public `stop` interrupts the batch."""
    return getattr(jvm_class(spark, _TERMINATED), "MODULE$")


def foreach_batch_class() -> Any:
    """Return the class of the objects that Spark calls for each batch. PySpark has no hook around a function."""
    from pyspark.sql.utils import ForeachBatchFunction

    return ForeachBatchFunction


def type_verifier(data_type: DataType, *, what: str) -> Callable[[Any], None]:
    """Return a function that raises if a value is not of the type. Publicly, only `createDataFrame` checks values."""
    from pyspark.sql.types import _make_type_verifier

    verify: Callable[[Any], None] = _make_type_verifier(data_type, nullable=False, name=what)
    return verify


def java_stack_trace(error: BaseException) -> str:
    """Return the stack trace of the Java exception behind `error`, or "".

    The error's text has it only in a debug mode.
    """
    return str(getattr(error, "_stackTrace", None) or "")


# --- Scala's collections ---------------------------------------------------------------------------------------------


def scala_list(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def scala_map(mapping: Any) -> dict[str, str]:
    pairs, found = mapping.iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found


# --- the check -------------------------------------------------------------------------------------------------------


class UnsupportedPySpark(Exception):
    """This PySpark lacks private API. The text names it, this version and the supported ones."""


class _Needed(NamedTuple):
    """Required names. `names` are those of a Python module or class, or methods of a Java class.

    `fields` are a Java class's own fields, private ones included. `since`: the first PySpark with which they are used.
    """

    owner: str
    names: str = ""
    fields: str = ""
    since: tuple[int, int] = (4, 0)


_PYTHON = (
    _Needed("pyspark:SparkContext", "_active_spark_context _ensure_initialized _gateway _jsc"),
    _Needed("pyspark.sql:SparkSession", "_instantiatedSession _jsparkSession _jvm"),
    _Needed("pyspark.sql:SparkSession", "_streamingCheckpointManager", since=(4, 3)),
    _Needed("pyspark.sql:SparkSession.Builder", "_options"),
    _Needed("pyspark.sql.classic.dataframe:DataFrame", "_jdf"),
    _Needed("pyspark.sql.streaming:DataStreamWriter", "_df _jwrite _sq"),
    _Needed("pyspark.sql.streaming:StreamingQuery", "_jsq"),
    _Needed("pyspark.sql.types", "_make_type_verifier"),
    _Needed("pyspark.sql.utils", "ForeachBatchFunction"),
)
_DEFAULTS = " ".join(f"$lessinit$greater$default${number}" for number in range(12, 17))
_JVM = (
    _Needed("org.apache.spark.SparkContext", "conf getPoolForName isStopped statusStore"),
    _Needed("org.apache.spark.status.AppStatusStore", "activeStages executorList stageList taskList"),
    _Needed(STAGE_STATUS, fields="FAILED"),
    _Needed(COMPRESSION_CODEC, "compressedInputStream compressedOutputStream createCodec"),
    _Needed(_SESSION, "cloneSession sessionState setActiveSession sharedState"),
    _Needed("org.apache.spark.sql.internal.SessionState", "conf newHadoopConf"),
    _Needed("org.apache.spark.sql.internal.SharedState", "activeStreamingQueries statusStore"),
    _Needed("org.apache.spark.sql.execution.ui.SQLAppStatusStore", "executionMetrics executionsCount executionsList"),
    _Needed(PYTHON_SQL_UTILS, "explainString"),
    _Needed("org.apache.spark.sql.execution.QueryExecution", "analyzed"),
    _Needed("org.apache.spark.sql.execution.datasources.DataSource", "className options"),
    _Needed("org.apache.spark.sql.catalyst.streaming.StreamingRelationV2", "extraOptions sourceName"),
    _Needed(f"{_STREAMING}.runtime.StreamingRelation", "dataSource"),
    _Needed("org.apache.spark.sql.classic.DataStreamWriter", fields="extraOptions outputMode source trigger"),
    _Needed(f"{_STREAMING}.runtime.StreamingQueryWrapper", "exception streamingQuery"),
    _Needed(f"{_STREAMING}.runtime.StreamExecution", "queryExecutionThread resolvedCheckpointRoot runId state"),
    _Needed(_TERMINATED, fields="MODULE$"),
    _Needed(INCREMENTAL_EXECUTION, f"executedPlan {_DEFAULTS}", since=(4, 3)),
    _Needed(OFFSETS_METADATA, "apply setSessionConf", since=(4, 3)),
    _Needed(WATERMARK_PROPAGATOR, "noop", since=(4, 3)),
    _Needed(FILE_SINK_LOG, "add", since=(4, 3)),
    _Needed(FILE_SINK_STATUS, since=(4, 3)),
)


def check(spark: SparkSession, supported: str) -> None:
    """Raise UnsupportedPySpark if private API is missing. `supported` has the versions of PySpark for its text.

    The JVM answers about 150 short calls, and loads classes, most of which the first query needs anyway.
    """
    import pyspark

    major, minor = map(int, pyspark.__version__.split(".")[:2])
    in_python, in_jvm = ([each for each in names if each.since <= (major, minor)] for names in (_PYTHON, _JVM))
    missing = list(_missing_in_python(in_python))
    if hasattr(spark, "_jvm"):
        missing += _missing_in_jvm(jvm_view(spark), in_jvm)
    if missing:
        raise UnsupportedPySpark(
            f"PySpark {pyspark.__version__} lacks private API that Waymark uses: {', '.join(missing)}. "
            f"Install PySpark {supported}, which Waymark supports."
        )


def _missing_in_python(needed: Iterable[_Needed]) -> Iterator[str]:
    for each in needed:
        owner_name = each.owner.replace(":", ".")
        try:
            owner = pkgutil.resolve_name(each.owner)
        except (ImportError, AttributeError):
            yield owner_name
            continue
        known = {*dir(owner), *(_used_by_methods(owner) if inspect.isclass(owner) else ())}
        yield from (f"{owner_name}.{name}" for name in each.names.split() if name not in known)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and jvm_process() is None:
        yield "pyspark.SparkContext._gateway.proc"


def _used_by_methods(owner: Any) -> Iterator[str]:
    """Yield the names that the class's methods use. The attributes of its instances are among them."""
    for method in filter(inspect.isfunction, vars(owner).values()):
        yield from inspect.unwrap(method).__code__.co_names


def _missing_in_jvm(jvm: Any, needed: Iterable[_Needed]) -> Iterator[str]:
    # Look up single methods. A list of all would exceed 8 kB and take 40 ms: Java waits for TCP's delayed
    # acknowledgement.
    class_of, method_of = jvm.java.lang.Class.forName, jvm.py4j.reflection.ReflectionEngine().getMethod
    for each in needed:
        found = _found(class_of, each.owner) or _found(class_of, _before_4_1(each.owner))
        if found is None:
            yield each.owner
            continue
        yield from (f"{each.owner}.{name}" for name in each.names.split() if method_of(found, name) is None)
        field_of = found.getDeclaredField
        yield from (f"{each.owner}.{name}" for name in each.fields.split() if _found(field_of, name) is None)


def _found(find: Callable[[str], Any], name: str) -> Any:
    try:
        return find(name)
    except Py4JJavaError:
        return None


def _before_4_1(name: str) -> str:
    return _PACKAGES_SINCE_4_1.sub(".streaming.", name)
