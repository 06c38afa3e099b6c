"""Which queries write rows of batches after a restored state a second time: as JSON, and as a warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from checkpointing.model.checkpoint import OperatorState
from checkpointing.model.messages import AfterRestore, Vertex, VertexKind

Json = Mapping[str, Any]


def sinks_json(operators: Iterable[Vertex | OperatorState]) -> list[dict[str, Any]]:
    """Return each query's sink, and what happens to its rows after a restore (null: unknown)."""
    return [
        {"name": operator.query, "sink": operator.name, "after-restore": _value(operator.after_restore)}
        for operator in operators
        if operator.kind is VertexKind.SINK
    ]


def _value(after_restore: AfterRestore | None) -> str | None:
    return None if after_restore is None else after_restore.value


def writing_again(queries: Iterable[Json]) -> list[dict[str, Any]]:
    """Return those of `sinks_json` that write rows again. Older job managers do not report this for a query."""
    return [
        {"query": query["name"], "sink": str(query["sink"]).removeprefix("Sink: ")}
        for query in queries
        if query.get("after-restore") == AfterRestore.WRITTEN_AGAIN.value
    ]


def warning_of(again: Sequence[Json]) -> str:
    """Return a warning for people. `again` is a result of `writing_again` and not empty."""
    targets = targets_of(again)
    return f"Warning: these queries write the rows of batches after the restored state a second time: {targets}."


def targets_of(again: Sequence[Json]) -> str:
    """Return a text with the queries of `writing_again` and their sinks."""
    return ", ".join(f"{each['query']} to {each['sink']}" for each in again)
