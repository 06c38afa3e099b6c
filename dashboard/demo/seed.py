"""Submit the demo's jobs once, and configure their savepoints, restarts and alerts in Waymark.

A job that has ever existed is not submitted again, so later changes and cancellations by people remain.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from checkpointing.ids import stable_id
from dashboard.demo.jobs import DEMO_JOBS, DemoJob
from monitoring.engine.answers import JobOverview
from monitoring.engine.client import client_for
from monitoring.engine.registration import EMBEDDED
from monitoring.models import AlertRule, Channel, ChannelKind, Cluster, Job

# At this time of the demo, the register works normally: see schedule.py.
FIRST_SAVEPOINT_AFTER_S = 90
SAVEPOINTS_KEPT = 10
MAX_RESTARTS_PER_HOUR = 20


@dataclass(frozen=True)
class Demo:
    """The directory of the demo's input, the file with the jobs' connections, and the URL for webhooks."""

    input_directory: Path
    connections: Path
    webhook_url: str

    def program_args(self) -> list[str]:
        return ["--input", str(self.input_directory), "--connections", str(self.connections)]


def submit_missing(demo: Demo, cluster: Cluster) -> list[str]:
    """Start each demo job that neither Waymark nor the job manager has ever seen, and return the names.

    A job's configuration in Waymark is stored before the job is started. The job ID depends only on the name and the
    directory, so that a start with a lost response is not repeated.

    Raises:
        EngineError: The job manager is not ready. Call this function again later.
    """
    existing = {job.name for job in asyncio.run(_jobs(cluster))} | known_jobs(cluster)
    missing = [job for job in DEMO_JOBS if job.name not in existing]
    for job in missing:
        jar_id = asyncio.run(_upload(cluster, job.program_path.name, job.program_path.read_bytes()))
        configure_job(demo, cluster, job, jar_id)
        asyncio.run(_run(cluster, job, demo, jar_id))
    return [job.name for job in missing]


async def _jobs(cluster: Cluster) -> tuple[JobOverview, ...]:
    async with client_for(cluster) as client:
        return await client.jobs_overview()


async def _upload(cluster: Cluster, name: str, content: bytes) -> str:
    async with client_for(cluster) as client:
        return await client.upload_jar(name, content)


async def _run(cluster: Cluster, job: DemoJob, demo: Demo, jar_id: str) -> None:
    async with client_for(cluster) as client:
        await client.run_jar(
            jar_id,
            job_id=stable_id("demo", job.name, str(demo.input_directory)),
            entry_class=job.entry_class,
            program_args=demo.program_args(),
            parallelism=job.parallelism,
            configuration=job.configuration,
            job_name=job.name,
        )


def known_jobs(cluster: Cluster) -> set[str]:
    """Return the names of the jobs that have ever run on the cluster."""
    return set(Job.objects.filter(cluster=cluster, runs__isnull=False).values_list("name", flat=True))


def configure_job(demo: Demo, cluster: Cluster, job: DemoJob, jar_id: str) -> None:
    """Store the job's launch record, savepoint schedule and recovery, an alert rule, and the channels of the rule."""
    row, _ = Job.objects.update_or_create(
        cluster=cluster,
        name=job.name,
        defaults={
            "launch": {
                "kind": "waymark",
                "jar_id": jar_id,
                "entry_class": job.entry_class,
                "program_args": demo.program_args(),
                "parallelism": job.parallelism,
                "configuration": dict(job.configuration),
            },
            "auto_restart": True,
            "restore_from": job.restore_from,
            "max_restarts_per_hour": MAX_RESTARTS_PER_HOUR,
            "savepoint_interval_s": job.savepoint_every_s,
            "savepoints_kept": SAVEPOINTS_KEPT,
            "next_savepoint_at": timezone.now() + timedelta(seconds=FIRST_SAVEPOINT_AFTER_S),
        },
    )
    rule, _ = AlertRule.objects.update_or_create(
        job=row,
        kind="failed_in_window",
        defaults={"window_s": 900, "threshold": 3, "check_every_s": 30, "next_check_at": timezone.now()},
    )
    rule.channels.set(
        [
            _channel("Demo mail", ChannelKind.MAIL, {"to": ["oncall@localhost"]}),
            _channel("Demo webhook", ChannelKind.WEBHOOK, {"url": demo.webhook_url}),
        ]
    )


def _channel(name: str, kind: ChannelKind, settings: dict[str, object]) -> Channel:
    # The demo's service receives the webhooks on this machine, so the channel may use a private address.
    values = {"kind": kind, "settings": settings, "allow_private": True}
    return Channel.objects.update_or_create(name=name, defaults=values)[0]


def embedded_cluster() -> Cluster:
    return Cluster.objects.get(name=EMBEDDED)
