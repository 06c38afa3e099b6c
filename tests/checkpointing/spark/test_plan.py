"""Vertices are derived from physical plans in the format of PySpark 4.3."""

from __future__ import annotations

from checkpointing.checkpoint_location.layout import Owner
from checkpointing.model.messages import VertexKind
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.query_plan import QueryPlan

STATE = (
    "state info [ checkpoint = <unknown>, runId = 3, opId = {}, ver = 0, numPartitions = {}] stateStoreCkptIds = None"
)

AGGREGATE = f"""== Physical Plan ==
*(4) HashAggregate(keys=[value#0], functions=[count(1)])
+- StateStoreSave [value#0], {STATE.format(0, 2)}, Append, -9223372036854775808, 2
   +- *(3) HashAggregate(keys=[value#0], functions=[merge_count(1)])
      +- StateStoreRestore [value#0], {STATE.format(0, 2)}, 2
         +- *(2) HashAggregate(keys=[value#0], functions=[merge_count(1)])
            +- Exchange hashpartitioning(value#0, 2), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=49]
               +- *(1) HashAggregate(keys=[value#0], functions=[partial_count(1)])
                  +- StreamingRelation FileSource[/data/in], [value#0]
"""

JOIN = f"""== Physical Plan ==
StreamingSymmetricHashJoin [value#6L], [value#8L], Inner, condition = [ leftOnly = null ], {STATE.format(0, 4)}, 2
:- Exchange hashpartitioning(value#6L, 4), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=115]
:  +- *(2) Filter isnotnull(timestamp#5-T10000ms)
:     +- StreamingRelation rate, [timestamp#5, value#6L]
+- Exchange hashpartitioning(value#8L, 4), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=123]
   +- *(4) StreamingRelation FileSource[/right], [timestamp#7, value#8L]
"""

TWO_OPERATORS = f"""== Physical Plan ==
+- StateStoreSave [window#21-T10000ms], {STATE.format(0, 2)}, Append
   +- StateStoreRestore [window#21-T10000ms], {STATE.format(0, 2)}, 2
      +- StreamingDeduplicateWithinWatermark [value#6L], {STATE.format(1, 2)}, -92
         +- StreamingRelation rate, [timestamp#5, value#6L]
"""

CONSOLE = Sink("console", None)


def described(plan: QueryPlan) -> list[tuple[str, VertexKind, int]]:
    return [(vertex.name, vertex.kind, vertex.parallelism) for vertex in plan.vertices]


def test_an_aggregation_is_one_operator() -> None:
    assert described(query_plan("q", AGGREGATE, CONSOLE, {})) == [
        ("Source: FileSource[/data/in]", VertexKind.SOURCE, 1),
        ("aggregate (stateStoreSave)", VertexKind.STATEFUL, 2),
        ("Sink: console", VertexKind.SINK, 1),
    ]


def test_a_join_has_two_sources() -> None:
    assert described(query_plan("q", JOIN, Sink("json", "/out"), {})) == [
        ("Source: rate", VertexKind.SOURCE, 1),
        ("Source: FileSource[/right]", VertexKind.SOURCE, 1),
        ("join (streamingSymmetricHashJoin)", VertexKind.STATEFUL, 4),
        ("Sink: json[/out]", VertexKind.SINK, 1),
    ]


def test_operators_are_numbered_as_spark_numbers_their_state() -> None:
    plan = query_plan("q", TWO_OPERATORS, CONSOLE, {})
    names = [plan.vertex(Owner(VertexKind.STATEFUL, index)) for index in (0, 1)]
    assert [v.name for v in names if v] == [
        "aggregate (stateStoreSave)",
        "deduplicate (streamingDeduplicateWithinWatermark)",
    ]


def test_a_restored_operator_keeps_its_partitions() -> None:
    vertex = query_plan("q", AGGREGATE, CONSOLE, {0: 7}).vertex(Owner(VertexKind.STATEFUL, 0))
    assert vertex is not None
    assert vertex.parallelism == 7


def test_ids_are_the_same_in_every_run_and_differ_between_queries() -> None:
    ids = [[v.id for v in query_plan(name, AGGREGATE, CONSOLE, {}).vertices] for name in ("a", "a", "b")]
    assert ids[0] == ids[1]
    assert not set(ids[0]) & set(ids[2])
    assert len(set(ids[0])) == 3


def test_a_query_without_state_has_a_source_and_a_sink() -> None:
    plan = query_plan("q", "== Physical Plan ==\nStreamingRelation rate, [timestamp#1, value#2L]", CONSOLE, {})
    assert [vertex.kind for vertex in plan.vertices] == [VertexKind.SOURCE, VertexKind.SINK]


def test_a_long_path_keeps_its_end() -> None:
    plan = query_plan("q", AGGREGATE, Sink("parquet", "/very/long" * 20 + "/end"), {})
    name = plan.vertices[-1].name
    assert len(name) == 80
    assert name.startswith("Sink: parquet[/very")
    assert name.endswith("/end]")
