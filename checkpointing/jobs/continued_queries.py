"""A query that was imported from a checkpoint location of Spark is continued by one job at a time.

Two jobs that continue one query read the same input and write to the same sinks. Each batch number of the newer job is
greater. So the older job's file sink would skip its own batches, and the newer one would move its files away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from checkpointing.model.job_graph import JobGraph
from checkpointing.model.refusals import Refusal, Refused
from checkpointing.model.status import JobStatus


class AlreadyContinued(Refused):
    """A job that has not ended continues the query that Spark wrote to `location`."""

    def __init__(self, location: str, job_id: str, job_name: str, status: JobStatus) -> None:
        super().__init__(Refusal.CONTINUED, location=location, job=job_name, id=job_id, status=status.value)
        self.location = location
        self.job_id = job_id
        self.job_name = job_name
        self.status = status


def check_not_continued(imports: Mapping[str, str], jobs: Iterable[tuple[JobGraph, JobStatus]]) -> None:
    """Raise AlreadyContinued if a job that has not ended continues one of `imports` (locations by query ID)."""
    for graph, status in jobs:
        for query_id in graph.imported_queries:
            if query_id in imports and not status.globally_terminal:
                raise AlreadyContinued(imports[query_id], graph.job_id, graph.name, status)
