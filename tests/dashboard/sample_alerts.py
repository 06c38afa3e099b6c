"""A scene of alerts, created by the real code: channels, grouped messages, an unreachable cluster, maintenance."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from monitoring.alerts import lifecycle
from monitoring.alerts.incidents import (
    Change,
    Ending,
    Opening,
    change_incidents,
    open_incidents,
    resolve_incidents,
)
from monitoring.alerts.kinds.job_failed import JobFailedReason
from monitoring.alerts.kinds.no_completed_checkpoint import NoCompletedCheckpointReason
from monitoring.alerts.kinds.outage_lengths import ClusterUnreachableReason
from monitoring.alerts.maintenance import plan_window
from monitoring.models import (
    AttemptOutcome,
    Channel,
    Cluster,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    Incident,
    MaintenanceWindow,
    Severity,
)
from monitoring.notify.due_notifications import gather_due
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.columns import columns
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import Reason
from tests.dashboard import builders as make

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class SampleAlerts:
    cluster_incident: Incident
    long_incident: Incident
    dead_message: Delivery
    digest: Delivery
    channel: Channel
    window: MaintenanceWindow


@transaction.atomic
def make_alerts(now: datetime, jobs: int = 34) -> SampleAlerts:
    boss, channel = _channels()
    production, staging = make.make_cluster(now, "eu-prod"), make.make_cluster(now, "staging-with-a-rather-long-name")
    long_incident = _long_incident(now, production)
    window = _maintenance(now, staging)
    cluster_incident = _unreachable_cluster(now, production, jobs)
    _settle(now, channel)
    dead = Delivery.objects.filter(channel=channel).earliest("id")
    return SampleAlerts(cluster_incident, long_incident, dead, Delivery.objects.latest("id"), boss, window)


def _channels() -> tuple[Channel, Channel]:
    boss = make.make_channel("platform lead")
    boss.language, boss.messages_per_10_min = "zh-hans", 2
    boss.save()
    hook = Channel.objects.create(
        name="on-call",
        kind="webhook",
        settings={"url": "https://hooks.example.org/services/waymark/a-long-path/that-goes-on"},
        secret="s3cret",
        repeat_every_s=1800,
        escalate_after_s=900,
        escalate_to=boss,
    )
    Channel.objects.create(
        name="team chat",
        kind="apprise",
        settings={"service": "DingTalk"},
        secret="dingtalk://abcdefgh12345678/",
        enabled=False,
    )
    return boss, hook


def _long_incident(now: datetime, cluster: Cluster) -> Incident:
    """Return an incident that was notified, repeated, escalated, acknowledged and changed, and is not resolved."""
    job = make.make_job(cluster, "orders-enrich")
    opening = Opening(
        "failed_in_window",
        Severity.CRITICAL,
        make.failed_in_window("orders-enrich", 5, 412),
        {"count": 5, "threshold": 3, "checkpoint_ids": [412, 411, 409, 408, 405]},
        job=job,
    )
    (incident,) = open_incidents([opening], now - 95 * MINUTE)
    for back in (94, 78, 60, 30):
        gather_due(now - back * MINUTE)
        _arrive(now - back * MINUTE)
    for count, back in ((6, 50), (7, 45), (9, 40)):
        found = make.failed_in_window("orders-enrich", count, 407 + count)
        change_incidents([Change(incident, found, {"count": count})], now - back * MINUTE)
    lifecycle.acknowledge(incident, "olga", "The registry is slow; its owners know.", now - 28 * MINUTE)
    return incident


def _maintenance(now: datetime, cluster: Cluster) -> MaintenanceWindow:
    running = MaintenanceWindow(
        reason="The disks of the state are replaced.",
        cluster=cluster,
        starts_at=now - 40 * MINUTE,
        ends_at=now + 20 * MINUTE,
        created_by="olga",
    )
    planned = MaintenanceWindow(
        reason="Upgrade of the broker, night by night",
        selector="team=payments,env!=dev",
        starts_at=now + timedelta(hours=9),
        ends_at=now + timedelta(hours=11),
        created_by="victor",
    )
    for window in (running, planned):
        plan_window(window)
    jobs = [make.make_job(cluster, f"inventory-cdc-{n}") for n in range(3)]
    ended = {"run": 4, "at": now - 30 * MINUTE, "cause": "the disk is gone"}
    found = open_incidents(
        [
            Opening("job_failed", Severity.WARNING, JobFailedReason.FAILED_CAUSE(subject=job.name, **ended), job=job)
            for job in jobs
        ],
        now - 30 * MINUTE,
    )
    gather_due(now - 29 * MINUTE)
    over = AlertReason.RESOLVED(lasted=5 * MINUTE, why=JobFailedReason.RUNNING(subject=jobs[0].name))
    resolve_incidents([Ending(found[0], over)], now - 25 * MINUTE)
    lifecycle.snooze(found[1], now + timedelta(hours=3), "olga", "after the upgrade", now - 24 * MINUTE)
    return running


def _unreachable_cluster(now: datetime, cluster: Cluster, jobs: int) -> Incident:
    opening = Opening(
        "cluster_unreachable",
        Severity.CRITICAL,
        ClusterUnreachableReason.FOUND(subject="eu-prod", since=now - 8 * MINUTE, limit=60),
        {"unreachable_since": (now - 8 * MINUTE).isoformat(), "consecutive_failures": 41},
        cluster=cluster,
    )
    (incident,) = open_incidents([opening], now - 2 * MINUTE)
    made = [make.make_job(cluster, f"clicks-sessions-{n}") for n in range(jobs)]
    open_incidents(
        [
            Opening(
                "no_completed_checkpoint",
                Severity.WARNING,
                NoCompletedCheckpointReason.NONE_SINCE(subject=job.name, checkpoint=7, at=now - 30 * MINUTE, limit=900),
                job=job,
            )
            for job in made
        ],
        now - MINUTE,
    )
    return incident


def _settle(now: datetime, channel: Channel) -> None:
    """Let the deliveries to the webhook fail. Its oldest message is given up."""
    gather_due(now)
    for delivery in Delivery.objects.filter(channel=channel, state=DeliveryState.PENDING):
        _tried(delivery, now, AttemptOutcome.AGAIN, "503 SERVICE UNAVAILABLE: upstream connect error")
    oldest = Delivery.objects.filter(channel=channel).earliest("id")
    Delivery.objects.filter(pk=oldest.pk).update(state=DeliveryState.DEAD, sent_at=None, attempts=10)
    for back in range(9, 0, -1):
        _tried(oldest, now - back * MINUTE, AttemptOutcome.AGAIN, NotifyReason.NO_ANSWER_IN_TIME())
    _tried(oldest, now, AttemptOutcome.GIVEN_UP, "503 SERVICE UNAVAILABLE: upstream connect error")


def _arrive(at: datetime) -> None:
    for delivery in Delivery.objects.filter(state=DeliveryState.PENDING):
        Delivery.objects.filter(pk=delivery.pk).update(state=DeliveryState.SENT, sent_at=at, attempts=1)
        _tried(delivery, at, AttemptOutcome.SENT, "200 OK: thanks")


def _tried(delivery: Delivery, at: datetime, outcome: AttemptOutcome, answer: Reason | str) -> None:
    DeliveryAttempt.objects.create(delivery=delivery, at=at, outcome=outcome, **columns("answer", answer))
