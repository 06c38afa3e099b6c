"""Default settings of jobs, and the YAML texts that were applied."""

from __future__ import annotations

from django.db import models


class JobDefault(models.Model):
    """Settings for the jobs that `selector` (monitoring.alerts.selector) chooses, unless they have their own.

    `settings` has values by column of Job. If two rows set the same for a job, that with the higher `priority` counts.
    """

    selector = models.CharField(max_length=500, unique=True)
    priority = models.PositiveSmallIntegerField(default=0)
    settings = models.JSONField(default=dict)

    class Meta:
        ordering = ("priority", "selector")

    def __str__(self) -> str:
        return self.selector


class AppliedText(models.Model):
    """The YAML text that was last applied from a source, against which a page shows the drift.

    `source` is "" for people, or the path of the inventory file, whose last `problems` are stored, too.
    """

    source = models.CharField(max_length=500, unique=True, blank=True)
    text = models.TextField(blank=True, default="")
    applied_at = models.DateTimeField(null=True)
    applied_by = models.CharField(max_length=150, blank=True, default="")
    problems = models.JSONField(default=list, blank=True)

    def __str__(self) -> str:
        return self.source or "people"
