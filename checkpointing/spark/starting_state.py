"""What the queries of an attempt start from: a snapshot, what the attempt before left, or nothing.

First each query's checkpointLocation is built (never in place), its state put on another number of partitions when the
job asks for one, and everything checked that would keep it from running: so far nobody has seen anything. Only then the
file sinks' output is put back. Last, the attempt writes down what it starts with, which is what a local recovery of it
will need.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from checkpointing.configuration import CheckpointConfiguration
from checkpointing.jobs.driver_spec import DriverSpec
from checkpointing.jobs.launching.deployment import deployment_of
from checkpointing.messages import VertexKind
from checkpointing.spark import file_sink
from checkpointing.spark.local_recovery import LiveQuery, LocalState, LocalStateUnusable, write_record
from checkpointing.spark.own_location import refuse_unless_empty
from checkpointing.spark.plan import QueryPlan, Sink, query_plan
from checkpointing.spark.rescale import log_batch_without_output, rescale, target_partitions
from checkpointing.spark.restore import Snapshot, check_fits, read_query_id, restore_output, restore_query
from checkpointing.spark.running_query import PlannedQuery
from checkpointing.storage import local_copy, read_metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# An attempt's own part of its work directory that a local recovery takes over.
QUERIES = "queries"


class StartingState(Protocol):
    @property
    def is_own(self) -> bool:
        """Whether the job's own program left it, which it fits then."""
        ...

    def partitions(self, query: str) -> dict[int, int]:
        """Partitions by stateful operator; {} for a query that it does not know."""
        ...

    def query_id(self, query: str) -> str | None:
        """Return the id that Spark gave to the query; None for a query that it does not know."""
        ...

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        """RestoreRefused or LocalStateUnusable, before anything is built."""
        ...

    def build(self, query: PlannedQuery) -> int | None:
        """Fill the query's location. Return the batch that it continues after, None when it starts without state.

        Raise SinkDirectoryTaken if it starts without state and its file sink's directory is another job's.
        """
        ...

    def put_output_back(self, query: PlannedQuery) -> None:
        """What readers of Spark's file sink see becomes what the state says that was written."""
        ...

    def taken_over(self) -> None:
        """Everything is built and written down."""
        ...


@dataclass(frozen=True)
class NoState:
    """`keep_output`: see `restore_output`."""

    job_id: str
    keep_output: bool = False
    is_own = True

    def partitions(self, query: str) -> dict[int, int]:
        return {}

    def query_id(self, query: str) -> str | None:
        return None

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        """Everything does."""

    def build(self, query: PlannedQuery) -> int | None:
        if query.files.sink_path is not None:
            file_sink.check_not_foreign(query.files.sink_path, self.job_id)
        return None

    def put_output_back(self, query: PlannedQuery) -> None:
        if query.files.sink_path is not None:
            file_sink.start_anew(query.files.sink_path, self.job_id, keep_output=self.keep_output)

    def taken_over(self) -> None:
        """There is nothing to give back."""


@dataclass(frozen=True)
class SnapshotState:
    """`keep_output`, `writers_are_gone`: see `restore_output`.

    `brought`: what was copied here from remote storage, if anything was.
    """

    job_id: str
    snapshot: Snapshot
    brought: Path
    allow_non_restored_state: bool
    keep_output: bool
    writers_are_gone: bool
    is_own: bool

    def partitions(self, query: str) -> dict[int, int]:
        return self.snapshot.partitions(query)

    def query_id(self, query: str) -> str | None:
        return self.snapshot.query_id(query)

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        vertices = [vertex for query in queries for vertex in query.plan.vertices]
        check_fits(self.snapshot, vertices, allow_non_restored_state=self.allow_non_restored_state)

    def build(self, query: PlannedQuery) -> int | None:
        if query.name not in self.snapshot.queries:
            return self._without_state.build(query)
        return restore_query(self.snapshot, query.name, query.plan.vertices, query.location)

    def put_output_back(self, query: PlannedQuery) -> None:
        if query.name not in self.snapshot.queries:
            self._without_state.put_output_back(query)
            return
        restore_output(self.snapshot, query.name, keep_output=self.keep_output, writers_are_gone=self.writers_are_gone)

    @property
    def _without_state(self) -> NoState:
        """How a query starts that is not in the snapshot."""
        return NoState(self.job_id, self.keep_output)

    def taken_over(self) -> None:
        """The queries have linked or copied what they need."""
        shutil.rmtree(self.brought, ignore_errors=True)


@dataclass(frozen=True)
class FormerAttempt:
    """`work` is its work directory. `keep_output`, `writers_are_gone`: see `restore_output`."""

    state: LocalState
    work: Path
    keep_output: bool
    writers_are_gone: bool
    is_own = True

    def partitions(self, query: str) -> dict[int, int]:
        return self.state.partitions(query) if query in self.state.queries else {}

    def query_id(self, query: str) -> str | None:
        known = self.state.queries.get(query)
        return None if known is None else read_query_id(known.location / "metadata")

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        now, then = {query.name for query in queries}, set(self.state.queries)
        if now != then:
            raise LocalStateUnusable(
                f"the program has the queries {sorted(now)}, the attempt before had {sorted(then)}"
            )

    def build(self, query: PlannedQuery) -> int | None:
        return self.state.build(query.name, query.location)

    def put_output_back(self, query: PlannedQuery) -> None:
        """Nothing is rewound; but the batch in flight runs again, and may have written files before."""
        if query.files.sink_path is not None and self.writers_are_gone and not self.keep_output:
            file_sink.put_unfinished_aside(query.files.sink_path, self.state.last_commit_ms(query.name))

    def taken_over(self) -> None:
        """Its links would keep files that the queries no longer need."""
        shutil.rmtree(self.work / QUERIES, ignore_errors=True)


def starting_state(spec: DriverSpec, work: Path) -> StartingState:
    """`work` is the attempt's own directory. SnapshotUnusable, LocalStateUnusable."""
    keep_output = not CheckpointConfiguration.parse(spec.configuration).exactly_once
    # An attempt starts when the one before is gone; a killed driver's executors may outlive it for a moment.
    has_executors = deployment_of(spec.configuration, parallelism=spec.parallelism).has_executors
    if spec.local is not None:
        former = Path(spec.local.work_directory)
        left = LocalState.read(former, of_any_boot=spec.local.of_any_boot)
        return FormerAttempt(left, former, keep_output, writers_are_gone=not has_executors)
    if spec.restore is None:
        return NoState(spec.job_id, keep_output)
    brought = work / "restored"
    snapshot = Snapshot(local_copy(read_metadata(spec.restore.directory), brought))
    is_own = snapshot.checkpoint.job_id == spec.job_id
    return SnapshotState(
        spec.job_id,
        snapshot,
        brought,
        spec.restore.allow_non_restored_state,
        keep_output,
        writers_are_gone=is_own and not has_executors,
        is_own=is_own,
    )


def for_queries(state: StartingState, names: Sequence[str]) -> StartingState:
    """`state` for the program's queries, in their order: an imported state may not know its query's name yet."""
    return replace(state, snapshot=state.snapshot.named(names)) if isinstance(state, SnapshotState) else state


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
    state: StartingState,
    spark: SparkSession,
    work: Path,
    queries: Sequence[PlannedQuery],
    check: Callable[[PlannedQuery, int], None] = lambda query, batch: None,
) -> BuiltQueries:
    """Every query's checkpointLocation, ready to start. `check` refuses a query that was restored after a batch."""
    state.check_fits(queries)
    restored: dict[str, int] = {}
    continues_after: dict[str, int] = {}
    for query in queries:
        batch = state.build(query)
        if batch is None:
            refuse_unless_empty(query)
        else:
            check(query, batch)
            target = target_partitions(query.plan, state.partitions(query.name))
            restored[query.name] = batch
            continues_after[query.name] = batch if target is None else rescale(spark, query.files, target)
            log.info("query %s continues after batch %d", query.name, continues_after[query.name])
    for query in queries:
        state.put_output_back(query)
        if query.files.sink_path is not None and continues_after.get(query.name) != restored.get(query.name):
            log_batch_without_output(spark, query.files.sink_path, continues_after[query.name])
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
