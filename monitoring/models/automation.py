"""Pauses of the automation, and its decisions about dead jobs."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.clusters import Cluster
from monitoring.models.jobs import Job
from monitoring.reasons.columns import ReasonField


class AutomationPause(models.Model):
    """A pause of scheduled savepoints and automatic restarts, for one cluster or, without a cluster, for everything.

    The pause of a single job is stored in the job's row. If `until` is None, the pause lasts until a person ends it.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="automation_pauses")
    reason = models.TextField()
    author = models.CharField(max_length=150)
    started_at = models.DateTimeField()
    until = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=150, blank=True, default="")

    class Meta:
        ordering = ("-started_at",)
        indexes = (models.Index(fields=("started_at",), condition=models.Q(ended_at=None), name="pauses_not_ended"),)

    def __str__(self) -> str:
        return f"automation of {self.cluster or 'everything'} is paused by {self.author}: {self.reason}"


class Verdict(models.TextChoices):
    RESTART = "restart", _("restarted")
    LEAVE = "leave", _("no action yet")
    PERSON = "person", _("needs a person")
    BREAKER = "breaker", _("breaker opened")


class RestartDecision(models.Model):
    """A decision of the automation about a dead job, with its facts. A row is added when the decision changes."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="restart_decisions")
    at = models.DateTimeField()
    verdict = models.CharField(max_length=10, choices=Verdict.choices)
    reason = models.TextField()
    reason_value = ReasonField(null=True)
    facts = models.JSONField(default=dict)

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("job", "-at")),)

    def __str__(self) -> str:
        return f"{self.job}: {self.verdict}, {self.reason}"
