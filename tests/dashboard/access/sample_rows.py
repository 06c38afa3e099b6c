"""Clusters with one row of every type, for tests of what an account may see."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from monitoring.models import (
    AttemptState,
    AutomationPause,
    Cluster,
    Delivery,
    DeliveryState,
    DiscoverySource,
    FoundResource,
    Job,
    MaintenanceWindow,
    RestartDecision,
    Runbook,
    RunException,
)
from tests.dashboard import builders as make

SECRET = "hunter2-never-shown"


@dataclass(frozen=True)
class Rows:
    """The rows of one cluster. `ids` has their ids by the first part of their URLs."""

    cluster: Cluster
    job: Job
    ids: dict[str, int]
    words: tuple[str, ...]  # texts that would reveal the rows


def rows_of_every_kind(now: datetime, name: str) -> Rows:
    cluster = make.make_cluster(now, f"{name}-cluster", labels={"env": name})
    cluster.rest_url = "http://127.0.0.1:9"
    cluster.save()
    launch = make.LAUNCH | {"configuration": {"s3.secret-key": SECRET, "parallelism.default": "4"}}
    job = make.make_job(cluster, f"{name}-job", labels={"team": name}, launch=launch)
    run = make.make_run(job, now)
    checkpoints = make.make_checkpoints(run, now, make.Shape(count=3))
    make.make_operators(checkpoints[-1:])
    savepoint = make.make_savepoint(run, now - timedelta(minutes=5), note=f"{name}-note")
    rule = make.make_rule(job)
    incident = make.make_incident(rule, now - timedelta(minutes=3))
    objective = make.make_objective(job, now)
    channel = make.make_channel(f"on-call {cluster.pk}")  # a channel belongs to no cluster: any rule may use it
    runbook = Runbook.objects.create(selector=f"team={name}", text=f"{name}-runbook")
    message = make.make_delivery(incident, channel, now - timedelta(minutes=3), state=DeliveryState.DEAD)
    attempt = make.make_attempt(job, now - timedelta(minutes=1), AttemptState.DECIDED)
    decision = RestartDecision.objects.create(job=job, at=now, verdict="leave", reason=f"{name}-reason")
    window = MaintenanceWindow.objects.create(
        reason=f"{name}-reason", job=job, starts_at=now, ends_at=now + timedelta(hours=1), created_by="olga"
    )
    pause = AutomationPause.objects.create(
        cluster=cluster, reason=f"{name}-reason", author="olga", started_at=now - timedelta(minutes=1)
    )
    source = DiscoverySource.objects.create(name=f"{name}-source", kubeconfig=SECRET)
    FoundResource.objects.create(source=source, cluster=cluster, name=f"{name}-found", found_at=now, changed_at=now)
    RunException.objects.create(run=run, at=now, name="E", message=f"{name}-message", digest="d")
    ids = {
        "clusters": cluster.pk,
        "jobs": job.pk,
        "runs": run.pk,
        "checkpoints": checkpoints[-1].pk,
        "operators": checkpoints[-1].operators.all()[0].pk,
        "savepoints": savepoint.pk,
        "rules": rule.pk,
        "runbooks": runbook.pk,
        "objectives": objective.pk,
        "incidents": incident.pk,
        "channels": channel.pk,
        "messages": message.pk,
        "restarts": attempt.pk,
        "decisions": decision.pk,
        "maintenance": window.pk,
        "pauses": pause.pk,
        "automation": pause.pk,
        "discoveries": source.pk,
    }
    assert Delivery.objects.filter(pk=message.pk).exists()
    return Rows(cluster, job, ids, (f"{name}-",))
