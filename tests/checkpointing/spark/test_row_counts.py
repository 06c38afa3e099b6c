"""The rows of a query's operators, summed over its batches."""

from __future__ import annotations

from typing import Any

from checkpointing.model.messages import VertexRows
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.row_counts import RowCounts
from tests.checkpointing.spark.test_plan import AGGREGATE, JOIN, TWO_OPERATORS


def progress(sources: list[int], states: list[tuple[int, int, int, int]], output: int = -1) -> dict[str, Any]:
    names = ("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark")
    return {
        "sources": [{"numInputRows": rows} for rows in sources],
        "stateOperators": [dict(zip(names, state, strict=True)) for state in states],
        "sink": {"numOutputRows": output},
    }


def counted(plan: str, *batches: dict[str, Any]) -> dict[str, VertexRows]:
    """Return the row counts of these batches, by the vertex's name."""
    made, counts = query_plan("q", plan, Sink("json", "/out"), {}), RowCounts()
    for batch in batches:
        counts.add(batch)
    names = {vertex.id: vertex.name.partition(" ")[0] for vertex in made.vertices}
    return {names[vertex]: rows for vertex, rows in counts.by_vertex(made).items()}


def test_sums_over_batches_and_the_state_as_of_the_last() -> None:
    found = counted(AGGREGATE, progress([5], [(3, 3, 0, 0)], 3), progress([7], [(4, 2, 1, 6)], 2))
    assert found == {
        "Source:": VertexRows(written=12),
        "aggregate": VertexRows(state=4, updated=5, removed=1, late=6),
        "Sink:": VertexRows(read=5),
    }


def test_a_sink_without_counts_is_omitted_permanently() -> None:
    found = counted(JOIN, progress([5, 6], [(0, 0, 0, 0)], 4), progress([1, 1], [(0, 0, 0, 0)], -1))
    assert set(found) == {"Source:", "join"}
    assert "Sink:" not in counted(JOIN, progress([1, 1], [(0, 0, 0, 0)]), progress([1, 1], [(0, 0, 0, 0)], 3))


def test_spark_reports_of_the_operators_from_the_top_of_the_plan() -> None:
    found = counted(TWO_OPERATORS, progress([1], [(10, 0, 0, 0), (20, 0, 0, 0)]))
    assert {name: rows.state for name, rows in found.items() if rows.state} == {"aggregate": 10, "deduplicate": 20}


def test_operators_missing_in_the_plan_belong_to_no_query() -> None:
    assert set(counted(TWO_OPERATORS, progress([1], [(10, 0, 0, 0)]))) == {"Source:"}
