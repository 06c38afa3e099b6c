"""Reads a query's operators from its plan before it runs, and returns them as vertices.

Spark builds the plan of a streaming DataFrame as text (`explain`) without starting anything. So the vertices are known
before there is data, and however long the first batch takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from checkpointing.model.messages import AfterRestore, Vertex, VertexKind
from checkpointing.spark.program import ProgramError
from checkpointing.spark.query_plan import QueryPlan, vertex_id
from checkpointing.spark_internals import (
    PYTHON_SQL_UTILS,
    frame_of,
    jvm_class,
    query_execution,
    scala_map,
    start_query,
    writer_field,
)

_SOURCE = re.compile(r"StreamingRelation (?P<name>.*), \[[^\[\]]*\](?:, name=\S+)?$")
_STATEFUL = re.compile(r"(?P<name>\w+)\b.*\bopId = (?P<operator>\d+),.*\bnumPartitions = (?P<partitions>\d+)")
_EXCHANGE = re.compile(r"Exchange (?P<partitioning>\w+)")
# A "!" marks an operator that refers to columns outside its input, as transformWithState in Python does.
_TREE_DRAWING = re.compile(r"^[\s:+\-]*(?:\*\(\d+\) )?!?")
_LONGEST_NAME = 80

# Common names of operators, by the name of Spark's physical operator.
_READABLE = {
    "StateStoreSave": "aggregate",
    "SessionWindowStateStoreSave": "session window",
    "StreamingSymmetricHashJoin": "join",
    "StreamingDeduplicate": "deduplicate",
    "StreamingDeduplicateWithinWatermark": "deduplicate",
    "StreamingGlobalLimit": "limit",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
}
# Spark plans an aggregation as two physical operators. These belong to the one that has the name.
_NOT_ITS_NAME = ("StateStoreRestore", "SessionWindowStateStoreRestore")


@dataclass(frozen=True)
class Source:
    """A source in the program. The keys of `options` are in lower case."""

    format: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class Sink:
    """A sink. `path` is where a file sink writes, None for any other sink. `after_restore` is None until it is known.

    `repeats_numbers`: a restore keeps the batch numbers of the query.
    """

    format: str
    path: str | None
    after_restore: AfterRestore | None = None
    repeats_numbers: bool = False


def query_plan(query: str, physical_plan: str, sink: Sink, partitions: Mapping[int, int]) -> QueryPlan:
    """Return the plan of a query.

    `partitions` overrides the parallelism of operators, because a restored query keeps that of its first start.
    """
    sources = _source_names(physical_plan)
    operators = _stateful_operators(physical_plan)
    spread = _partitionings(physical_plan)
    parallelism = {
        operator: 1 if spread.get(operator) == "SinglePartition" else partitions.get(operator, planned)
        for operator, (_, planned) in operators.items()
    }
    vertices = [_vertex(query, VertexKind.SOURCE, i, f"Source: {name}", 1) for i, name in enumerate(sources)]
    vertices += [
        _vertex(query, VertexKind.STATEFUL, operator, _operator_name(name), parallelism[operator])
        for operator, (name, _) in sorted(operators.items())
    ]
    target = _vertex(query, VertexKind.SINK, 0, f"Sink: {_sink_name(sink)}", 1)
    vertices.append(replace(target, after_restore=sink.after_restore, repeats_numbers=sink.repeats_numbers))
    indices = [*range(len(sources)), *sorted(operators), 0]
    by_owner = {(v.kind, index): v for v, index in zip(vertices, indices, strict=True)}
    keyed = frozenset(i for i in operators if spread.get(i) == "hashpartitioning")
    return QueryPlan(query, by_owner, keyed, tuple(operators))


def _vertex(query: str, kind: VertexKind, index: int, name: str, parallelism: int) -> Vertex:
    return Vertex(vertex_id(query, kind, index), _short(name), kind, parallelism, query)


def _source_names(physical_plan: str) -> list[str]:
    """Return the sources' names in Spark's order: that of the plan, from the top."""
    lines = (_TREE_DRAWING.sub("", line) for line in physical_plan.splitlines())
    return [match["name"] for line in lines if (match := _SOURCE.match(line))]


def _stateful_operators(physical_plan: str) -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    for line in physical_plan.splitlines():
        match = _STATEFUL.match(_TREE_DRAWING.sub("", line))
        if match is not None and match["name"] not in _NOT_ITS_NAME:
            found[int(match["operator"])] = (match["name"], int(match["partitions"]))
    return found


def _partitionings(physical_plan: str) -> dict[int, str]:
    """Return the partitioning of each stateful operator's input, which the nearest exchange below it shows."""
    found: dict[int, str] = {}
    undecided: list[int] = []
    for line in physical_plan.splitlines():
        text = _TREE_DRAWING.sub("", line)
        if (operator := _STATEFUL.match(text)) is not None:
            undecided.append(int(operator["operator"]))
        elif (exchange := _EXCHANGE.match(text)) is not None:
            found.update(dict.fromkeys(undecided, exchange["partitioning"]))
            undecided = []
    return found


def _operator_name(spark_name: str) -> str:
    readable = _READABLE.get(spark_name.removesuffix("Exec"))
    return f"{readable} ({spark_name[0].lower()}{spark_name[1:]})" if readable else spark_name


def _sink_name(sink: Sink) -> str:
    if sink.format.lower() == "foreachbatch":
        return "foreachBatch"  # Spark may keep the name in either spelling
    return f"{sink.format}[{sink.path}]" if sink.path else sink.format


def _short(name: str) -> str:
    """Return the name without the middle of a long path, because the end distinguishes paths."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:24]}…{name[-(_LONGEST_NAME - 25) :]}"


# --- reading from Spark ----------------------------------------------------------------------------------------------


def explain(writer: Any) -> str:
    """Return the physical plan of a DataStreamWriter's DataFrame. Raise AnalysisException if it cannot be planned."""
    utilities = jvm_class(session_of(writer), PYTHON_SQL_UTILS)
    return str(utilities.explainString(query_execution(frame_of(writer)), "simple"))


def writer_options(writer: Any) -> dict[str, str]:
    """Return the options set so far, with keys in lower case."""
    return _options(writer_field(writer, "extraOptions").toMap())


def query_name(options: Mapping[str, str], number: int) -> str:
    """Return the query's own name, or a name that is the same in each attempt for the program's `number`th query."""
    return options.get("queryname") or f"query-{number}"


def _options(mapping: Any) -> dict[str, str]:
    """Return the options with keys in lower case, because Spark ignores their case."""
    return {key.lower(): value for key, value in scala_map(mapping).items()}


def sources_of(writer: Any) -> tuple[Source, ...]:
    """Return the sources with their options, in the order of the logical plan's leaves, as `_source_names` does."""
    leaves = logical_plan(writer).collectLeaves().iterator()
    found = []
    while leaves.hasNext():
        leaf = leaves.next()
        match leaf.getClass().getSimpleName():
            case "StreamingRelation":  # the file source, and others of Spark's first source API
                relation = leaf.dataSource()
                found.append(Source(str(relation.className()), _options(relation.options())))
            case "StreamingRelationV2":
                options = leaf.extraOptions().asCaseSensitiveMap()
                found.append(Source(str(leaf.sourceName()), {str(key).lower(): str(options[key]) for key in options}))
    return tuple(found)


def output_mode(writer: Any) -> Any:
    """Return the output mode as Spark's own object."""
    return writer_field(writer, "outputMode")


_TABLE, _POOL = "_waymark_table", "_waymark_pool"
_SCHEDULER_POOL = "spark.scheduler.pool"


def set_table(writer: Any, name: str) -> None:
    """Store that the query writes to a table, as `toTable(name)` does on PySpark's writer."""
    setattr(writer, _TABLE, name)


def table_of(writer: Any) -> str | None:
    return getattr(writer, _TABLE, None)


def keep_pool(writer: Any) -> None:
    """Store the scheduler pool of this thread, which runs the program, because another thread starts the query."""
    setattr(writer, _POOL, session_of(writer).sparkContext.getLocalProperty(_SCHEDULER_POOL))


_FUNCTION = "_waymark_function"


def set_function(writer: Any, function: Any) -> None:
    """Store the function of foreachBatch, which PySpark's writer keeps in the JVM."""
    setattr(writer, _FUNCTION, function)


def function_of(writer: Any) -> Any:
    return getattr(writer, _FUNCTION, None)


def start(writer: Any) -> Any:
    """Start the query. PySpark's own `start` and `toTable` are replaced while a program runs (taken_over.py)."""
    session_of(writer).sparkContext.setLocalProperty(_SCHEDULER_POOL, getattr(writer, _POOL, None))
    return start_query(writer, table_of(writer))


def session_of(writer: Any) -> Any:
    return frame_of(writer).sparkSession


def logical_plan(writer: Any) -> Any:
    """Return the logical plan as Spark's own object: analyzed, not optimized."""
    return query_execution(frame_of(writer)).analyzed()


def has_continuous_trigger(writer: Any) -> bool:
    return bool(writer_field(writer, "trigger").getClass().getSimpleName() == "ContinuousTrigger")


_FILE_FORMATS = ("parquet", "orc", "json", "csv", "text", "avro", "xml")


def sink_of(writer: Any, options: Mapping[str, str]) -> Sink:
    name, table = str(writer_field(writer, "source")), table_of(writer)
    if table is not None and not options.get("path"):
        return _table_sink(session_of(writer), table)
    if table is not None:
        _refuse_below_warehouse(table, options["path"])
    return Sink(name, options.get("path") if name.lower() in _FILE_FORMATS else None)


def _table_sink(spark: Any, table: str) -> Sink:
    """Return the sink of `toTable(table)`. Raise ProgramError for a table that would be lost with the attempt."""
    if spark.catalog.tableExists(table):
        facts = {row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
        provider = str(facts.get("Provider", ""))
        if facts.get("Type") != "MANAGED" or not _is_temporary(spark, table):
            return Sink(table, facts.get("Location") if provider.lower() in _FILE_FORMATS else None)
    elif not _is_temporary(spark, table):
        return Sink(table, None)
    raise ProgramError(
        f"toTable({table!r}): Spark's catalog is in memory, so the table would be gone after a restart. Set the path "
        'of its files with .option("path", ...), or give the job a catalog (spark.sql.catalog...).'
    )


def _refuse_below_warehouse(table: str, path: str) -> None:
    """Raise ProgramError for a relative path: Spark puts it below its warehouse, which belongs to the attempt."""
    if not path.startswith("/") and ":" not in path:
        raise ProgramError(
            f"toTable({table!r}): the path {path!r} is below Spark's warehouse, and its files would be gone after some "
            "restarts. Use an absolute path."
        )


def _is_temporary(spark: Any, table: str) -> bool:
    """Return whether the table is in Spark's catalog in memory, with its files in the attempt's scratch directory."""
    conf = spark.conf
    is_sessions = table.count(".") < 2 and spark.catalog.currentCatalog() == "spark_catalog"
    has_other = conf.get("spark.sql.catalog.spark_catalog", "") or table.split(".")[0] in _catalogs(conf)
    return bool(is_sessions and not has_other and conf.get("spark.sql.catalogImplementation") == "in-memory")


def _catalogs(conf: Any) -> set[str]:
    prefix = "spark.sql.catalog."
    return {name.removeprefix(prefix).partition(".")[0] for name in conf.getAll if name.startswith(prefix)}
