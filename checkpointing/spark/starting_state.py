"""The state from which the queries of an attempt start: a snapshot, local files of the previous attempt, or nothing.

First, each query's checkpointLocation is built (never in place), and its batches get new numbers (decision 132). If the
job requests it, the state is moved to another number of partitions. Then everything is checked that could keep the
query from running. Nothing outside of the attempt has changed so far. Then the file sinks' output is returned to the
state. Last, the attempt records what it starts with, which a later local recovery needs.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from checkpointing.checkpoint_location.local_recovery import LiveQuery, LocalState, LocalStateUnusable, write_record
from checkpointing.jobs.launching.deployment import deployment_of
from checkpointing.jobs.restore import AFTER_RESTORE, BATCH_NUMBERS, replaced_batches
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import CheckpointConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.messages import VertexKind
from checkpointing.spark import file_sink
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.query_plan import QueryPlan
from checkpointing.spark.renumber import FormatNotKnown, first_batch, renumber
from checkpointing.spark.rescale import RescaleRefused, log_batch_without_output, rescale, target_partitions
from checkpointing.spark.restore import (
    RestoreRefused,
    Snapshot,
    check_fits,
    check_output,
    read_query_id,
    restore_output,
    restore_query,
)
from checkpointing.spark.rocksdb_metadata import fit_metadata
from checkpointing.spark.running_query import PlannedQuery, refuse_unless_empty
from checkpointing.spark.sink_output import COMPACT_INTERVAL, SinkLogEnd, compact_interval
from checkpointing.storage import local_copy, read_metadata

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

# The part of the attempt's work directory that a local recovery takes over.
QUERIES = "queries"


class StartingState(Protocol):
    @property
    def is_own(self) -> bool:
        """Return whether the job's own program left the state, so that it fits."""
        ...

    def partitions(self, query: str) -> dict[int, int]:
        """Return the partitions by stateful operator, or {} for an unknown query."""
        ...

    def query_id(self, query: str) -> str | None:
        """Return the ID that Spark gave to the query, or None for an unknown query."""
        ...

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        """Raise RestoreRefused or LocalStateUnusable before anything is built."""
        ...

    def build(self, query: PlannedQuery) -> int | None:
        """Fill the query's location. Return the batch after which it continues, or None if it starts without state."""
        ...

    def check_output(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        """Check `put_output_back` in advance. Raise SinkDirectoryTaken, or as `build`."""
        ...

    def put_output_back(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        """Show readers of Spark's file sink the output that belongs to the state.

        `end` is how the sink's log then ends. None keeps its numbers.
        """
        ...

    def taken_over(self) -> None:
        """Clean up after everything is built and recorded."""
        ...


@dataclass(frozen=True)
class NoState:
    """A start without state. `restore_output` explains `keep_output`."""

    job_id: str
    keep_output: bool = False
    is_own = True

    def partitions(self, query: str) -> dict[int, int]:
        return {}

    def query_id(self, query: str) -> str | None:
        return None

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        """Accept all queries."""

    def build(self, query: PlannedQuery) -> int | None:
        return None

    def check_output(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        if query.output is not None:
            file_sink.check_not_foreign(query.output, self.job_id)

    def put_output_back(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        if query.output is not None:
            file_sink.start_without_state(query.output, self.job_id, keep_output=self.keep_output)

    def taken_over(self) -> None:
        """Do nothing: there are no files to remove."""


class RowsWouldBeWrittenAgain(RestoreRefused):
    """The job's settings allow this restore only if a person requests it."""

    def __init__(self, checkpoint: CompletedCheckpoint, queries: Sequence[PlannedQuery]) -> None:
        kind = "savepoint" if checkpoint.properties.is_savepoint else "checkpoint"
        targets = ", ".join(f"{query.name} to {query.sink.format}" for query in queries)
        super().__init__(
            f"{AFTER_RESTORE} is refuse, so only a person may restore {kind} {checkpoint.checkpoint_id}. These queries "
            f"would write the rows of batches after it a second time: {targets}"
        )


class BatchesWereReplaced(RestoreRefused):
    """A query that keeps its batch numbers has since written other batches under the numbers in the snapshot."""


@dataclass(frozen=True)
class SnapshotState:
    """A snapshot to restore. `restore_output` explains `keep_output` and `writers_are_gone`.

    RestoreSpec explains `may_write_again`, `restored_since` and `other_jobs`. `brought`: the directory for files that
    were copied from remote storage.
    """

    job_id: str
    snapshot: Snapshot
    brought: Path
    allow_non_restored_state: bool
    keep_output: bool
    writers_are_gone: bool
    is_own: bool
    may_write_again: bool = True
    restored_since: Mapping[str, int] = field(default_factory=dict)
    other_jobs: Sequence[str] = ()

    def partitions(self, query: str) -> dict[int, int]:
        return self.snapshot.partitions(query)

    def query_id(self, query: str) -> str | None:
        return self.snapshot.query_id(query)

    def check_fits(self, queries: Sequence[PlannedQuery]) -> None:
        vertices = [vertex for query in queries for vertex in query.plan.vertices]
        check_fits(self.snapshot, vertices, allow_non_restored_state=self.allow_non_restored_state)
        for query in queries:
            if query.repeats_numbers and query.name in self.restored_since:
                restored = self.restored_since[query.name]
                raise BatchesWereReplaced(replaced_batches(self.snapshot.checkpoint, query.name, restored))
        again = [query for query in queries if query.writes_again and query.name in self.snapshot.queries]
        if again and not self.may_write_again:
            raise RowsWouldBeWrittenAgain(self.snapshot.checkpoint, again)

    def build(self, query: PlannedQuery) -> int | None:
        return restore_query(self.snapshot, query.name, query.plan.vertices, query.location)

    def check_output(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        if query.name not in self.snapshot.queries:
            self._without_state.check_output(query, end)
        elif query.output is not None and end is not None:
            check_output(self.snapshot, query.name, query.output, end, self.job_id, self.other_jobs)
        elif query.output is not None and not is_in_flight(
            query.location, self.snapshot.checkpoint.batches[query.name]
        ):
            raise ValueError(
                f"query {query.name!r} has Spark's file sink, but no batch number is known to continue with"
            )

    def put_output_back(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        if query.name not in self.snapshot.queries:
            self._without_state.put_output_back(query, end)
        elif query.output is not None and end is not None:
            restore_output(
                self.snapshot,
                query.name,
                query.output,
                end,
                self.job_id,
                keep_output=self.keep_output,
                writers_are_gone=self.writers_are_gone,
            )

    @property
    def _without_state(self) -> NoState:
        """Return the starting state for a query that is not in the snapshot."""
        return NoState(self.job_id, self.keep_output)

    def taken_over(self) -> None:
        """Remove the copied files: the queries have linked or copied what they need."""
        shutil.rmtree(self.brought, ignore_errors=True)


@dataclass(frozen=True)
class FormerAttempt:
    """The local files of the previous attempt. `work` is its work directory.

    `restore_output` explains `keep_output` and `writers_are_gone`.
    """

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
                f"the program has the queries {sorted(now)}, but the previous attempt had {sorted(then)}"
            )

    def build(self, query: PlannedQuery) -> int | None:
        return self.state.build(query.name, query.location)

    def check_output(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        if query.output is None:
            return
        self.state.check_sinks_log(query.name, query.output.log_names())
        if end is not None:
            file_sink.check_numbers_are_new(query.output, end.first)

    def put_output_back(self, query: PlannedQuery, end: SinkLogEnd | None) -> None:
        """Keep the output, but move files aside that the unfinished batch may have written, because it runs again."""
        if query.output is None:
            return
        if end is not None:
            query.output.end_log(query.output.visible(), end)
        if self.writers_are_gone and not self.keep_output:
            file_sink.move_unfinished_aside(query.output, self.state.last_commit_ms(query.name))

    def taken_over(self) -> None:
        """Remove the previous attempt's links, which would keep files that the queries no longer need."""
        shutil.rmtree(self.work / QUERIES, ignore_errors=True)


def starting_state(spec: DriverSpec, work: Path) -> StartingState:
    """Return the state that the specification names. Raise SnapshotUnusable or LocalStateUnusable.

    `work` is the attempt's own directory.
    """
    keep_output = not CheckpointConfiguration.parse(spec.configuration).exactly_once
    # An attempt starts when the previous one has ended. Executors of a killed driver may live a moment longer.
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
        may_write_again=spec.restore.may_write_again,
        restored_since=spec.restore.restored_since,
        other_jobs=spec.restore.other_jobs,
    )


def for_queries(state: StartingState, names: Sequence[str]) -> StartingState:
    """Return `state` for the program's queries, in their order. It names imported state that has no query name yet."""
    return replace(state, snapshot=state.snapshot.named(names)) if isinstance(state, SnapshotState) else state


def plan_on(state: StartingState, query: str, physical_plan: str, sink: Sink, *, asks: bool) -> QueryPlan:
    """Return the plan with the query's partitions: those of its state, unless the job `asks` for another number."""
    kept = state.partitions(query)
    if asks:
        planned = query_plan(query, physical_plan, sink, {})
        if target_partitions(planned, kept) is not None:
            return planned
    return query_plan(query, physical_plan, sink, kept)


def is_in_flight(location: Path, batch: int) -> bool:
    """Return whether the batch after `batch` has begun. If so, sinks may know it by its number.

    A snapshot has such a batch only if it was made from a location of plain Spark.
    """
    return (location / "offsets" / str(batch + 1)).exists()


@dataclass(frozen=True)
class ContinuedBatch:
    """The batch after which a query continues, with its numbers.

    Its state was taken after batch `restored`, which now is batch `number`. `after` is one more if a rescale added a
    batch.
    """

    restored: int
    number: int
    after: int


def build_queries(
    state: StartingState,
    spark: SparkSession,
    work: Path,
    queries: Sequence[PlannedQuery],
    check: Callable[[PlannedQuery, int], None] = lambda query, batch: None,
    numbers: BatchNumbers | None = None,
) -> dict[str, ContinuedBatch]:
    """Build every query's checkpointLocation, ready to start. Return where each query with state continues.

    Args:
        check: refuses a query that was restored after a batch.
        numbers: the range of batch numbers for restored queries; None keeps their numbers.
    """
    state.check_fits(queries)
    for query in queries:
        _check_may_rescale(query, target_partitions(query.plan, state.partitions(query.name)))
    end = _restored_end(spark, queries, numbers)
    continued: dict[str, ContinuedBatch] = {}
    for query in queries:
        batch = state.build(query)
        if batch is None:
            refuse_unless_empty(query)
        else:
            check(query, batch)
            number = _renumbered(spark, query, batch, end)
            fit_metadata(query.location, spark.version)
            target = target_partitions(query.plan, state.partitions(query.name))
            after = number if target is None else rescale(spark, query.files, target)
            continued[query.name] = ContinuedBatch(batch, number, after)
            log.info("query %s: batch %d is batch %d now, and it continues after %d", query.name, batch, number, after)
        state.check_output(query, _sink_end(end, continued.get(query.name)))
    for query in queries:
        found = continued.get(query.name)
        state.put_output_back(query, _sink_end(end, found))
        if query.output is not None and found is not None and found.after != found.number:
            log_batch_without_output(spark, str(query.output), found.after)
    write_record(work, [_live(query, continued.get(query.name)) for query in queries])
    state.taken_over()
    return continued


def _restored_end(
    spark: SparkSession, queries: Sequence[PlannedQuery], numbers: BatchNumbers | None
) -> SinkLogEnd | None:
    """Return the number of the last restored batch. It is the same for all queries and fits the log of each."""
    if numbers is None:
        return None
    interval = 1
    if any(query.output is not None for query in queries):
        interval = compact_interval(spark)
    batch = first_batch(numbers, interval)
    if batch + 1 >= numbers.end:
        raise ValueError(f"{COMPACT_INTERVAL}={interval}: too large for the {numbers}")
    return SinkLogEnd(batch, interval)


def _renumbered(spark: SparkSession, query: PlannedQuery, batch: int, end: SinkLogEnd | None) -> int:
    if end is None or query.repeats_numbers or is_in_flight(query.location, batch):
        return batch
    try:
        renumber(spark, query.location, batch, end.batch)
    except FormatNotKnown as error:
        raise RestoreRefused(f"Query {query.name!r} cannot be restored by this version of Waymark: {error}") from error
    return end.batch


def _check_may_rescale(query: PlannedQuery, partitions: int | None) -> None:
    """Raise RescaleRefused if the query keeps its numbers and must be rescaled.

    A rescale is a batch without rows, so the function would never replace old rows under its number.
    """
    if query.repeats_numbers and partitions is not None:
        raise RescaleRefused(
            f"The state of query {query.name!r} cannot be put on {partitions} partitions: a rescale uses up a batch "
            f"number, and the query must keep its numbers ({BATCH_NUMBERS}: repeat). Leave the parallelism as it was."
        )


def _sink_end(end: SinkLogEnd | None, continued: ContinuedBatch | None) -> SinkLogEnd | None:
    return end if end is not None and continued is not None and continued.number == end.batch else None


def _live(query: PlannedQuery, continued: ContinuedBatch | None) -> LiveQuery:
    return LiveQuery(
        name=query.name,
        directory=f"{QUERIES}/{query.location.name}",
        started_after=None if continued is None else continued.after,
        sink_path=None if query.output is None else str(query.output.local or query.output),
        partitions={
            str(operator): vertex.parallelism
            for (kind, operator), vertex in query.plan.by_owner.items()
            if kind is VertexKind.STATEFUL
        },
    )
