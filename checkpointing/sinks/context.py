"""The context of a sink: the attempt for which it writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkpointing.sinks.lineage import Lineage, Segment, abandoned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SinkContext:
    """The job, its attempt and the timeline that it writes (see `lineage`). Batch numbers count within the timeline.

    A timeline is kept only while every batch that it wrote is repeated with the same input, by an attempt that
    continues in the query's own checkpointLocation. A restore of a state that may be older begins a new timeline.

    `restored_batches` maps a query to the last batch in the restored state. `lineages` maps it to the timelines that
    made the state, including this one.
    """

    job_id: str
    attempt: int
    timeline: str
    restored_batches: Mapping[str, int] = field(default_factory=dict)
    lineages: Mapping[str, Lineage] = field(default_factory=dict)

    def lineage(self, query: str) -> Lineage:
        """Return the query's lineage. An unknown query starts without state."""
        known = self.lineages.get(query)
        return known or (Segment(self.timeline, self.restored_batches.get(query, -1)),)

    def abandoned(self, query: str) -> tuple[tuple[int, int], ...]:
        """Return the batch numbers that are not part of the query's output now, as (first, last) pairs.

        All other numbers up to the restored batch do count. The pairs change when a state is restored: rows that were
        abandoned count again if a state is restored that contains them. So sinks should mark such rows instead of
        deleting them.
        """
        return abandoned(self.lineage(query))


class NotInADriver(RuntimeError):
    """A sink was used outside a job of the job manager."""


class OutputTaken(Exception):
    """The output belongs to another query, or to a job that this one did not continue from. A retry cannot help."""


class FencedOut(RuntimeError):
    """A newer attempt, or another job, writes to this sink, so this one must end. Nothing of the batch was written."""


_current: SinkContext | None = None


def current() -> SinkContext:
    """Return the context of this process's job. Only the driver has one; Python workers do not."""
    if _current is None:
        raise NotInADriver("this process has no job: sinks work only in the driver of a Waymark job")
    return _current


def set_current(context: SinkContext) -> None:
    """Set the context. The driver calls it before the queries start."""
    global _current
    _current = context


def query_of(frame: DataFrame) -> str:
    """Return the name of the streaming query of the batch `frame`.

    Call it on the thread of the `foreachBatch` function.
    """
    from pyspark.sql import SparkSession

    query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    # The batch's session is a clone that knows no queries.
    query = SparkSession.builder.getOrCreate().streams.get(query_id) if query_id else None
    if query is None or query.name is None:
        raise NotInADriver(
            "the rows are not a batch of a streaming query; call the sink from foreachBatch, on its thread"
        )
    return str(query.name)
