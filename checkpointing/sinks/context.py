"""What a sink needs to know of the attempt that it writes for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from checkpointing.sinks.lineage import Lineage, Segment, abandoned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SinkContext:
    """The job, its attempt and the timeline that it writes (see `lineage`): batch numbers count within it.

    A timeline is kept only while every batch that it wrote is repeated with the same input: by an attempt that goes on
    in the query's own checkpointLocation. Whoever restores a state that may be older gives a new one.

    `restored_batches` has, by query, the last batch that the restored state contains; `lineages` the timelines that
    the state was made by, this one included.
    """

    job_id: str
    attempt: int
    timeline: str
    restored_batches: Mapping[str, int] = field(default_factory=dict)
    lineages: Mapping[str, Lineage] = field(default_factory=dict)

    def lineage(self, query: str) -> Lineage:
        """Of a query that is not known here: it starts without state."""
        known = self.lineages.get(query)
        return known or (Segment(self.timeline, self.restored_batches.get(query, -1)),)

    def abandoned(self, query: str) -> tuple[tuple[int, int], ...]:
        """Return the batch numbers of the query's output that do not count now, as (first, last) pairs.

        All other numbers up to the restored batch do count. The pairs change when a state is restored: rows that were
        abandoned count again if a state is restored that contains them. So mark such rows rather than delete them.
        """
        return abandoned(self.lineage(query))


class NotInADriver(RuntimeError):
    """A sink was used outside a job of the job manager."""


class OutputTaken(Exception):
    """The output is another query's, or that of a job that this one did not continue from. A retry changes nothing."""


class FencedOut(RuntimeError):
    """A newer attempt, or another job, writes to this sink: this one must end. Nothing of the batch was written."""


_current: SinkContext | None = None


def current() -> SinkContext:
    """The context of the job that this process runs. Only in the driver: Python workers do not have one."""
    if _current is None:
        raise NotInADriver("there is no job here: sinks get their context from the driver that runs the program")
    return _current


def set_current(context: SinkContext) -> None:
    """For the driver, before the queries start."""
    global _current
    _current = context


def query_of(frame: DataFrame) -> str:
    """The name of the streaming query whose batch `frame` is. For use on the thread of the `foreachBatch` function."""
    from pyspark.sql import SparkSession

    query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    # The batch's own session is a clone that knows no queries.
    query = SparkSession.builder.getOrCreate().streams.get(query_id) if query_id else None
    if query is None or query.name is None:
        raise NotInADriver("this is no batch of a streaming query: call the sink from foreachBatch, on its thread")
    return str(query.name)
