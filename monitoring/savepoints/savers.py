"""Which cluster takes the savepoints of a job."""

from __future__ import annotations

from typing import NamedTuple

from monitoring.models import Cluster, Job, QuerySource


class Saver(NamedTuple):
    """A cluster that takes savepoints of a job, and its ID of the job: 32 hexadecimal digits."""

    cluster: Cluster
    engine_job_id: str


def saver_of(job: Job, engine_job_id: str) -> Saver | None:
    """Return the job's cluster, or the watched directory with a directory for savepoints that sees the same query.

    Return None if there is neither. `engine_job_id` is the ID of the run that is saved.
    """
    if job.cluster.can_save:
        return Saver(job.cluster, engine_job_id)
    sources = QuerySource.objects.filter(query__job=job, cluster__enabled=True, cluster__archived_at=None)
    saving = sources.exclude(cluster__savepoint_target="").select_related("cluster")
    source = saving.order_by("-query", "pk").first()
    return None if source is None else Saver(source.cluster, source.engine_job_id)
