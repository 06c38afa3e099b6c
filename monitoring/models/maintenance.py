"""Maintenance windows, in which notifications are silenced."""

from __future__ import annotations

from datetime import datetime

from django.db import models

from monitoring.models.clusters import Cluster
from monitoring.models.jobs import Job
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.reason import Reason


class MaintenanceWindow(models.Model):
    """A time from `starts_at` to `ends_at` without notifications for incidents of its scope.

    The scope is `job`, `cluster` with its jobs, or the jobs that `selector` chooses (monitoring.alerts.selector).
    Exactly one of these is set.
    """

    reason = models.TextField()
    job = models.ForeignKey(Job, on_delete=models.CASCADE, null=True, blank=True, related_name="maintenance")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, blank=True, related_name="maintenance")
    selector = models.CharField(max_length=500, blank=True, default="")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True)
    created_by = models.CharField(max_length=150)
    ended_by = models.CharField(max_length=150, blank=True, default="")  # the person who ended the window early

    class Meta:
        ordering = ("-starts_at", "-id")

    def __str__(self) -> str:
        return str(self.name)

    @property
    def name(self) -> Reason:
        return AlertReason.MAINTENANCE(scope=self.scope)

    @property
    def scope(self) -> Reason:
        if self.job is not None:
            return AlertReason.OF_JOB(job=self.job.name)
        if self.cluster is not None:
            return AlertReason.OF_CLUSTER(cluster=self.cluster.name)
        return AlertReason.OF_JOBS_WITH(labels=self.selector)

    def is_active(self, now: datetime) -> bool:
        return self.starts_at <= now < self.ends_at
