"""Find the resource for which the Flink operator runs a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from django.db.models import QuerySet

from monitoring.kubernetes.kinds import JOB_KINDS, ResourceKind
from monitoring.models import Cluster, FoundResource, Job


@dataclass(frozen=True)
class JobResource:
    """The resource for which the operator runs a job. `source`: the key of the source that has found it."""

    source: int
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, row: FoundResource) -> JobResource:
        return cls(row.source_id, row.kind, row.namespace, row.name, row.uid)

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> JobResource:
        return cls(**value)  # type: ignore[arg-type]

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @property
    def resource_kind(self) -> ResourceKind:
        return JOB_KINDS[self.kind]

    def __str__(self) -> str:
        return f"{self.resource_kind.name} {self.namespace}/{self.name}"


def resource_of(job: Job) -> FoundResource | None:
    """Return the resource for which an operator runs the job, with its source."""
    run = job.current_run
    if run is None:
        return None
    found = job_resources(job.cluster, run.engine_job_id)
    return found[0] if found else None


def job_resources(cluster: Cluster, engine_job_id: str) -> list[FoundResource]:
    """Return the resources of the cluster that have this job by their operator: in general one or none."""
    return [
        row
        for _own, related in related_resources(cluster)
        for row in related.filter(gone_at=None, kind__in=JOB_KINDS, state__job_id=engine_job_id)
    ]


def related_resources(cluster: Cluster) -> Iterator[tuple[FoundResource, QuerySet[FoundResource]]]:
    """Yield the resources that the cluster was found by, each with all that belong to its deployment, itself too."""
    for own in FoundResource.objects.filter(cluster=cluster, gone_at=None).select_related("source"):
        same = own.source.found_resources.filter(namespace=own.namespace, deployment=own.name)
        yield own, same.select_related("source")
