"""Find the queries that write rows a second time when a job is restored from a snapshot (decision 132)."""

from __future__ import annotations

from dataclasses import dataclass

from checkpointing.model.messages import AfterRestore
from monitoring.models import Job, Run, RunState, SavepointState
from monitoring.savepoints.history import plain_path

# The exception name with which Waymark's job manager refuses a restore that only a person may request.
REFUSED = "RowsWouldBeWrittenAgain"


@dataclass(frozen=True)
class QuerySink:
    """A query and its sink, with the names that the job manager reports."""

    query: str
    sink: str


@dataclass(frozen=True)
class RowsWrittenAgain:
    """The queries that write rows of batches after the restored snapshot again.

    `is_known` is False for Flink and older job managers, which do not report what their sinks do.
    """

    queries: tuple[QuerySink, ...] = ()
    is_known: bool = False


class Restores:
    """Tells, for each snapshot of a job, which queries would write rows again after a restore."""

    def __init__(self, job: Job) -> None:
        run = job.current_run
        self._ends = end_states(run)
        self._older = of_run(run if run is None or run.vertices else _last_with_operators(job))

    def of(self, path: str) -> RowsWrittenAgain:
        """Return the result for the snapshot at `path`. "" means the savepoint with which the job will be stopped."""
        is_the_end = not path or plain_path(path) in self._ends
        return RowsWrittenAgain(is_known=True) if is_the_end else self._older


def of_run(run: Run | None) -> RowsWrittenAgain:
    """Return the result for a restore from an older snapshot, according to the operators of `run`."""
    vertices = [] if run is None else run.vertices
    sinks = [vertex for vertex in vertices if vertex.get("after_restore")]
    again = (
        QuerySink(vertex["query"], vertex["name"].removeprefix("Sink: "))
        for vertex in sinks
        if vertex["after_restore"] == AfterRestore.WRITTEN_AGAIN.value
    )
    return RowsWrittenAgain(tuple(again), bool(sinks))


def end_states(run: Run | None) -> frozenset[str]:
    """Return the paths of the snapshots with which `run` ended: no rows were written after them."""
    if run is None or run.state not in (RunState.FINISHED, RunState.CANCELED):
        return frozenset()
    last = run.savepoints.filter(stops_job=True, state=SavepointState.COMPLETED).values_list("path", flat=True)
    own = run.outcome.get("state") if run.outcome.get("saved") else None
    return frozenset(plain_path(path) for path in (*last, own) if path)


def _last_with_operators(job: Job) -> Run | None:
    return job.runs.exclude(vertices=[]).order_by("-number").first()
