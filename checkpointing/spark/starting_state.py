"""What the queries of an attempt start from: a snapshot, what the attempt before left on this machine, or nothing.

In this order, for each query: its checkpointLocation is built (never in place), its file sink's log put back, its state
put on another number of partitions when the job asks for one. Last, the attempt writes down what it starts with, which
is what a local recovery of it will need.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from checkpointing.configuration import CheckpointConfiguration
from checkpointing.jobs.driver_spec import DriverSpec
from checkpointing.messages import VertexKind
from checkpointing.spark.local_recovery import LiveQuery, LocalState, LocalStateUnusable, write_record
from checkpointing.spark.plan import QueryPlan, Sink, query_plan
from checkpointing.spark.rescale import rescale, target_partitions
from checkpointing.spark.restore import Snapshot, check_fits, restore_query, start_file_sink_anew
from checkpointing.spark.running_query import PlannedQuery
from checkpointing.storage import local_copy, read_metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# An attempt's own part of its work directory that a local recovery takes over.
QUERIES = "queries"


class StartingState(Protocol):
    def partitions(self, query: str) -> dict[int, int]:
        """Partitions by stateful operator; {} for a query that it does not know."""
        ...

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        """RestoreRefused or LocalStateUnusable, before anything is built."""
        ...

    def build(self, query: PlannedQuery) -> int | None:
        """Fill the query's location. The batch that it continues after, None when it starts without state."""
        ...

    def taken_over(self) -> None:
        """Everything is built and written down."""
        ...


@dataclass(frozen=True)
class NoState:
    job_id: str

    def partitions(self, query: str) -> dict[int, int]:
        return {}

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        """Everything does."""

    def build(self, query: PlannedQuery) -> int | None:
        if query.files.sink_path is not None:
            start_file_sink_anew(query.files.sink_path, self.job_id)
        return None

    def taken_over(self) -> None:
        """There is nothing to give back."""


@dataclass(frozen=True)
class SnapshotState:
    """`keep_output`: see `restore_query`. `brought`: what was copied here from remote storage, if anything was."""

    snapshot: Snapshot
    brought: Path
    allow_non_restored_state: bool
    keep_output: bool

    def partitions(self, query: str) -> dict[int, int]:
        return self.snapshot.partitions(query)

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        vertices = [vertex for query in queries for vertex in query.plan.vertices]
        check_fits(self.snapshot, vertices, allow_non_restored_state=self.allow_non_restored_state)

    def build(self, query: PlannedQuery) -> int | None:
        vertices, location = query.plan.vertices, query.location
        return restore_query(self.snapshot, query.name, vertices, location, keep_output=self.keep_output)

    def taken_over(self) -> None:
        """The queries have linked or copied what they need."""
        shutil.rmtree(self.brought, ignore_errors=True)


@dataclass(frozen=True)
class FormerAttempt:
    """`work` is its work directory."""

    state: LocalState
    work: Path

    def partitions(self, query: str) -> dict[int, int]:
        return self.state.partitions(query) if query in self.state.queries else {}

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        now, then = {query.name for query in queries}, set(self.state.queries)
        if now != then:
            raise LocalStateUnusable(
                f"the program has the queries {sorted(now)}, the attempt before had {sorted(then)}"
            )

    def build(self, query: PlannedQuery) -> int | None:
        return self.state.build(query.name, query.location)

    def taken_over(self) -> None:
        """Its links would keep files that the queries no longer need."""
        shutil.rmtree(self.work / QUERIES, ignore_errors=True)


def starting_state(spec: DriverSpec, work: Path) -> StartingState:
    """`work` is the attempt's own directory. SnapshotUnusable, LocalStateUnusable."""
    if spec.local is not None:
        former = Path(spec.local.work_directory)
        return FormerAttempt(LocalState.read(former), former)
    if spec.restore is None:
        return NoState(spec.job_id)
    brought = work / "restored"
    snapshot = Snapshot(local_copy(read_metadata(spec.restore.directory), brought))
    exactly_once = CheckpointConfiguration.parse(spec.configuration).exactly_once
    return SnapshotState(snapshot, brought, spec.restore.allow_non_restored_state, keep_output=not exactly_once)


def plan_on(state: StartingState, query: str, physical_plan: str, sink: Sink, *, asks: bool) -> QueryPlan:
    """The plan with the partitions that the query will have: its state's, unless the job `asks` for another number."""
    kept = state.partitions(query)
    if asks:
        planned = query_plan(query, physical_plan, sink, {})
        if target_partitions(planned, kept) is not None:
            return planned
    return query_plan(query, physical_plan, sink, kept)


@dataclass(frozen=True)
class BuiltQueries:
    """By query: the batch that its state was taken after, and the one that it goes on after (a rescale adds one)."""

    restored: Mapping[str, int]
    continues_after: Mapping[str, int]


def build_queries(
    state: StartingState, spark: SparkSession, work: Path, queries: Sequence[PlannedQuery]
) -> BuiltQueries:
    """Every query's checkpointLocation, ready to start."""
    state.check_fits(queries)
    restored: dict[str, int] = {}
    continues_after: dict[str, int] = {}
    for query in queries:
        batch = state.build(query)
        if batch is not None:
            target = target_partitions(query.plan, state.partitions(query.name))
            restored[query.name] = batch
            continues_after[query.name] = batch if target is None else rescale(spark, query.files, target)
            log.info("query %s continues after batch %d", query.name, continues_after[query.name])
    write_record(work, [_live(query, continues_after.get(query.name)) for query in queries])
    state.taken_over()
    return BuiltQueries(restored, continues_after)


def _live(query: PlannedQuery, started_after: int | None) -> LiveQuery:
    sink_path = query.files.sink_path
    return LiveQuery(
        name=query.name,
        directory=f"{QUERIES}/{query.location.name}",
        started_after=started_after,
        sink_path=None if sink_path is None else str(sink_path),
        partitions={
            str(operator): vertex.parallelism
            for (kind, operator), vertex in query.plan.by_owner.items()
            if kind is VertexKind.STATEFUL
        },
    )
