"""A job that the simulated Flink operator runs, as Waymark has found it."""

from __future__ import annotations

from django.utils import timezone

from monitoring.discovery.kubernetes.resources import read
from monitoring.kubernetes.kinds import JOB_KINDS
from monitoring.models import DiscoverySource, FoundResource, Job, Savepoint
from tests.monitoring.conftest import Rows
from tests.monitoring.discovery.played_operator import PlayedOperator


def make_job(operator: PlayedOperator, job_id: str, deployment: str) -> Job:
    rows = Rows(now=timezone.now())
    source = DiscoverySource.objects.create(
        name="east", kubeconfig=operator.kubernetes.kubeconfig, may_change_resources=True
    )
    cluster = rows.cluster(rest_url=operator.jobs.url)
    for (kind, _namespace, _name), resource in operator.kubernetes.objects.items():
        found = read(JOB_KINDS[kind], resource, source.address_pattern)
        values = {"uid": found.uid, "state": found.state, "found_at": rows.now, "changed_at": rows.now}
        owner = cluster if found.key.name == deployment else None
        FoundResource.objects.create(
            source=source, cluster=owner, deployment=found.deployment, **found.key._asdict(), **values
        )
    job = rows.job(cluster, name="orders", max_restarts_per_hour=6)
    run = rows.run(job, engine_job_id=job_id)
    rows.checkpoint(run, 7, external_path="file:/chk/7")
    Savepoint.objects.create(
        job=job, run=run, origin="manual", state="completed", path="file:/sp/1", requested_at=rows.ago(900)
    )
    return job
