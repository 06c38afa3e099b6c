"""Say which resource of Kubernetes an operator runs a job for. The operator starts such a job, so Waymark does not."""

from __future__ import annotations

from monitoring.discovery.kubernetes.resources import FLINK_DEPLOYMENT, FLINK_SESSION_JOB
from monitoring.models import FoundResource, Job

_NAMES = {kind.key: kind.name for kind in (FLINK_DEPLOYMENT, FLINK_SESSION_JOB)}


def operated_by(job: Job) -> str:
    """Return the kind and the name of the resource whose job this is, "" if there is none."""
    if job.current_run is None:
        return ""
    for own in FoundResource.objects.filter(cluster=job.cluster, gone_at=None).select_related("source"):
        same = own.source.found_resources.filter(namespace=own.namespace, deployment=own.name, gone_at=None)
        row = same.filter(kind__in=_NAMES, state__job_id=job.current_run.engine_job_id).first()
        if row is not None:
            return f"{_NAMES[row.kind]} {row}"
    return ""
