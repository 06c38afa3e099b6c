"""The number of rows that a query's operators have read and written, summed over its batches from Spark's progress.

Some numbers are unknown, because Spark does not count them: rows that go into or come out of a stateful operator, and
rows that a sink of the program (foreachBatch) gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from checkpointing.model.messages import VertexKind, VertexRows
from checkpointing.spark.query_plan import QueryPlan


@dataclass
class _StateRows:
    """The rows of a state. `total` is as of the last batch, the other numbers are sums."""

    total: int = 0
    updated: int = 0
    removed: int = 0
    late: int = 0


@dataclass
class RowCounts:
    """The row counts of one query, since this process started it."""

    _sources: list[int] = field(default_factory=list)
    _states: list[_StateRows] = field(default_factory=list)
    _output: int | None = 0

    def add(self, progress: Mapping[str, Any]) -> None:
        """Add the progress of a batch that ran."""
        for number, source in enumerate(progress.get("sources") or ()):
            self._sources += [0] * (number + 1 - len(self._sources))
            self._sources[number] += source.get("numInputRows") or 0
        for number, state in enumerate(progress.get("stateOperators") or ()):
            self._states += [_StateRows() for _ in range(number + 1 - len(self._states))]
            rows = self._states[number]
            rows.total = state.get("numRowsTotal") or 0
            rows.updated += state.get("numRowsUpdated") or 0
            rows.removed += state.get("numRowsRemoved") or 0
            rows.late += state.get("numRowsDroppedByWatermark") or 0
        written = (progress.get("sink") or {}).get("numOutputRows")
        if self._output is not None:  # -1: the sink does not count its rows
            self._output = self._output + written if written is not None and written >= 0 else None

    def by_vertex(self, plan: QueryPlan) -> dict[str, VertexRows]:
        """Return the rows by vertex ID. Vertices without known rows are left out."""
        rows = {(VertexKind.SOURCE, i): VertexRows(written=count) for i, count in enumerate(self._sources)}
        if len(self._states) == len(plan.stateful_from_the_top):
            for operator, state in zip(plan.stateful_from_the_top, self._states, strict=True):
                rows[VertexKind.STATEFUL, operator] = VertexRows(
                    state=state.total, updated=state.updated, removed=state.removed, late=state.late
                )
        if self._output is not None:
            rows[VertexKind.SINK, 0] = VertexRows(read=self._output)
        return {plan.by_owner[owner].id: counted for owner, counted in rows.items() if owner in plan.by_owner}
