"""Results of Waymark's own periodic tasks."""

from __future__ import annotations

from django.db import models

from monitoring.reasons.columns import ReasonField


class Tick(models.Model):
    """The newest results of one periodic task, and how often it ran."""

    task = models.CharField(max_length=100, unique=True)
    worker = models.CharField(max_length=200, blank=True, default="")  # host:pid of the newest run that succeeded
    ended_at = models.DateTimeField(null=True)  # end of the newest run that succeeded
    took_ms = models.PositiveIntegerField(null=True)  # duration of the newest run that succeeded
    sentence = models.TextField(blank=True, default="")  # the report of the newest run that did something
    sentence_value = ReasonField(null=True)
    said_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)  # end of the newest run that failed
    failure = models.TextField(blank=True, default="")
    failure_value = ReasonField(null=True)  # None if another program's error made the newest run fail
    runs = models.PositiveBigIntegerField(default=0)
    failures = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ("task",)

    def __str__(self) -> str:
        return self.task
