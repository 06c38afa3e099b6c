"""The job in the driver's process: its Spark session, its queries and their restore."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpointing.checkpoint_location.file_store import FileChecksums, known_checksums
from checkpointing.clock import Clock
from checkpointing.jobs.launching.deployment import deployment_of
from checkpointing.jobs.launching.package import PACKAGE_NAME, zipped_package
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.jobs.wheels import make_importable
from checkpointing.model.configuration import PREFIX, CheckpointConfiguration
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.model.messages import Vertex
from checkpointing.sinks.context import SinkContext, set_current
from checkpointing.sinks.lineage import Lineage
from checkpointing.spark.channels import QueryEnds, find_channels
from checkpointing.spark.executor_uploads import ExecutorUploads
from checkpointing.spark.lost_input import check_input_exists
from checkpointing.spark.plan import (
    explain,
    has_continuous_trigger,
    keep_pool,
    query_name,
    session_of,
    sink_of,
    sources_of,
    writer_options,
)
from checkpointing.spark.program import (
    Program,
    ProgramError,
    as_writers,
    call_program,
    load_program,
    parse_arguments,
    returned_writers,
)
from checkpointing.spark.program_run import ProgramRun
from checkpointing.spark.rescale import requests_partitions
from checkpointing.spark.running_query import PlannedQuery, RunningQuery, after_restore, own_location, repeats_numbers
from checkpointing.spark.session import enter_directory, refuse_relative, start_session
from checkpointing.spark.starting_state import (
    ContinuedBatch,
    StartingState,
    build_queries,
    for_queries,
    plan_on,
    starting_state,
)
from checkpointing.spark.state_schema import check_state_fits
from checkpointing.spark.timelines import begin_timeline
from checkpointing.spark.uploads import Uploads
from checkpointing.spark_internals import activate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SparkJob:
    """The queries of the job in this process.

    `restored` maps each query to the last batch of the state that it started with.
    """

    queries: tuple[RunningQuery, ...]
    restored: Mapping[str, int]
    program: ProgramRun

    @property
    def is_at_least_once(self) -> bool:
        """Return whether a query's trigger allows only at-least-once, independent of its sink."""
        return any(query.planned.is_continuous for query in self.queries)

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        return tuple(vertex for query in self.queries for vertex in query.planned.plan.vertices)


ProgramArguments = Mapping[str, str] | Sequence[str]


def load(spec: DriverSpec, work: WorkDirectory) -> tuple[Program, ProgramArguments]:
    """Return the program and its arguments, before any JVM starts. Raise ProgramError."""
    if not deployment_of(spec.configuration, parallelism=spec.parallelism).driver_is_in_the_cluster:
        # In a cluster, spark-submit has already made the files importable.
        make_importable(spec.configuration, work.program)
    program = load_program(Path(spec.program_path), spec.entry_class, work.program)
    return program, spec.program_args if program.is_script else parse_arguments(spec.program_args)


def open_session(spec: DriverSpec, work: WorkDirectory) -> SparkSession:
    settings = session_settings(work, spec.parallelism, spec.configuration)
    return start_session(spec.job_name, settings, work)


def checksums_known_to(spec: DriverSpec, job: SparkJob) -> FileChecksums:
    """Return the known checksums of the state that the attempt started from."""
    directory = spec.restore.directory if spec.restore is not None else None
    if spec.local is not None:
        directory = spec.local.newest_checkpoint
    return known_checksums(directory, {query.name: query.planned.location for query in job.queries})


def executor_uploads(spec: DriverSpec, spark: SparkSession, clock: Clock) -> Uploads | None:
    """Return the uploads by executors, or None if the tasks run in the driver."""
    if not deployment_of(spec.configuration, parallelism=spec.parallelism).has_executors:
        return None
    least_bytes = CheckpointConfiguration.parse(spec.configuration).executor_uploads_bytes
    return ExecutorUploads(spark.sparkContext, least_bytes, clock)


def prepare(
    spec: DriverSpec, work: WorkDirectory, spark: SparkSession, program: Program, arguments: ProgramArguments
) -> SparkJob:
    """Call the program and build each query's checkpointLocation. Nothing is started yet.

    Raise ProgramError, RestoreRefused, SnapshotDamaged, SnapshotUnusable, LocalStateUnusable, or what the program
    raises.
    """
    state = starting_state(spec, work.root)
    _send_package_to_executors(spec, work, spark)
    make_importable_for_workers(spark, program)
    enter_directory(spec.configuration, spark)
    log.info("calls %s", program.entry_class)  # the program may take any time
    run = run_program(program, spark, arguments, state.query_id)
    returned = run.until_settled()
    writers = as_writers(returned, program.entry_class, [query.writer for query in run.queries])
    state = for_queries(state, [query_name(writer_options(each), number) for number, each in enumerate(writers)])
    asks = requests_partitions(spec.parallelism, spec.configuration)
    planned = plan_queries(writers, work, state, spec.configuration, requests_partitions=asks)
    check = functools.partial(_check_restored, spec, state)
    continued = build_queries(state, spark, work.root, planned, check, spec.batch_numbers)
    write_query_ids(run, planned)
    if spec.restore is not None:
        _warn_of_rows_written_again([query for query in planned if query.name in continued])
    lineages = {query.name: _begin_timeline(spec, query, continued.get(query.name)) for query in planned}
    restored = {name: batch.restored for name, batch in continued.items()}
    set_current(SinkContext(spec.job_id, spec.attempt, spec.timeline, restored, lineages))
    continues_after = {name: batch.after for name, batch in continued.items()}
    return SparkJob(tuple(RunningQuery(query) for query in planned), continues_after, run)


def write_query_ids(run: ProgramRun, queries: Sequence[PlannedQuery]) -> None:
    """Write the query IDs that the program has already received, so that Spark uses them."""
    for query in queries:
        path = query.location / "metadata"
        if query.name in run.ids and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"id": run.ids[query.name]}))


def run_program(
    program: Program,
    spark: SparkSession,
    arguments: ProgramArguments,
    known_id: Callable[[str], str | None] = lambda name: None,
) -> ProgramRun:
    """Create the run of the program. From now on it takes over the queries that the program starts."""
    from checkpointing.spark.taken_over import take_over

    def call() -> Any:
        activate(spark)
        returned = call_program(program, spark, arguments)
        for writer in returned_writers(returned):
            keep_pool(writer)
        return returned

    run = ProgramRun(call, known_id)
    take_over(run)
    return run


def _warn_of_rows_written_again(queries: Sequence[PlannedQuery]) -> None:
    for query in queries:
        if query.writes_again:
            log.warning(
                "query %s: the rows of batches after the restored state are written to %s a second time",
                query.name, query.sink.format,
            )  # fmt: skip
        if query.repeats_numbers:
            log.warning(
                "query %s: its batches keep their numbers, and replace those after the restored state one after the "
                "other. States that contain those cannot be restored afterwards", query.name,
            )  # fmt: skip


def _begin_timeline(spec: DriverSpec, query: PlannedQuery, continued: ContinuedBatch | None) -> Lineage:
    if continued is None:
        return begin_timeline(query.location, spec.timeline, None)
    return begin_timeline(query.location, spec.timeline, continued.restored, numbered_after=continued.number)


def _check_restored(spec: DriverSpec, state: StartingState, query: PlannedQuery, batch: int) -> None:
    """Raise RestoreRefused if the query cannot continue from the state at its location, or would miss input."""
    if not state.is_own:
        check_state_fits(query, batch)
    if spec.restore is None or not spec.restore.allow_non_restored_state:
        check_input_exists(query.name, query.location, batch)


def _send_package_to_executors(spec: DriverSpec, work: WorkDirectory, spark: SparkSession) -> None:
    """Send this package to the executors, where keyed state, sources and sinks need it.

    For a driver in a cluster, spark-submit has sent it.
    """
    deployment = deployment_of(spec.configuration, parallelism=spec.parallelism)
    if deployment.has_executors and not deployment.driver_is_in_the_cluster:
        spark.sparkContext.addPyFile(str(zipped_package(work.root / PACKAGE_NAME)))


def make_importable_for_workers(spark: SparkSession, program: Program) -> None:
    """Let Python workers on this machine import the program.

    For transformWithState, Spark starts a Python worker next to the driver before it plans, and added files do not
    reach that worker. Functions of a single script reach workers by value, because its name may be that of an installed
    module.
    """
    if program.is_script and program.path.suffix != ".zip":
        return
    spark.sparkContext.addPyFile(str(program.path))
    directory = program.path if program.path.suffix == ".zip" else program.path.parent
    spark.sparkContext.environment["PYTHONPATH"] = str(directory)


def plan_queries(
    writers: Sequence[Any],
    work: WorkDirectory,
    state: StartingState,
    configuration: Mapping[str, str],
    *,
    requests_partitions: bool = False,
) -> list[PlannedQuery]:
    """Name and place each query, and find the channels between queries. Raise ProgramError.

    `configuration` is the job's.
    """
    exactly_once = CheckpointConfiguration.parse(configuration).exactly_once
    planned: list[PlannedQuery] = []
    ends: list[QueryEnds] = []
    for number, writer in enumerate(writers):
        options = writer_options(writer)
        name = query_name(options, number)
        if any(query.name == name for query in planned):
            raise ProgramError(f"two queries are named {name!r}; give each its own .queryName(...)")
        location = work.queries / f"{number}-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}"
        sink = sink_of(writer, options)
        if sink.path is not None:
            refuse_relative(name, sink.path, configuration, session_of(writer))
        sink = replace(
            sink,
            after_restore=after_restore(writer, sink, exactly_once=exactly_once),
            repeats_numbers=repeats_numbers(name, sink, options),
        )
        plan = plan_on(state, name, explain(writer), sink, asks=requests_partitions)
        is_continuous = has_continuous_trigger(writer)
        if is_continuous:
            refuse_exactly_once(name, configuration)
        ends.append(QueryEnds(name, sources_of(writer), sink.format, options))
        own = own_location(writer, options)
        named = writer.queryName(name).option("checkpointLocation", str(location))
        planned.append(
            PlannedQuery(
                named,
                plan,
                location,
                sink,
                is_continuous=is_continuous,
                own_location=own,
            )
        )
    channels = find_channels(ends)
    return [replace(query, inputs=tuple(c for c in channels if c.consumer == query.name)) for query in planned]


_MODE = f"{PREFIX}mode"


def refuse_exactly_once(query: str, configuration: Mapping[str, str]) -> None:
    """Raise ProgramError if the job explicitly requests exactly-once for a continuous query.

    The default is at least once.
    """
    asked = configuration.get(_MODE, "")
    if asked.upper().replace("-", "_") == "EXACTLY_ONCE":
        raise ProgramError(
            f"{_MODE}: {asked!r} is not possible with the continuous trigger of query {query!r}, whose output a "
            "restart cannot undo. Use AT_LEAST_ONCE or another trigger."
        )
