"""When the automation acts, when it is held, and what it decided."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.clusters import Cluster
from monitoring.models.jobs import Job
from monitoring.reasons.columns import ReasonField


class AutomationPause(models.Model):
    """No scheduled savepoint and no automatic restart while it lasts. Without a cluster it holds for everything; a
    single job is paused on its own row. `until` None: until somebody ends it."""

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
    """What the automation decided of a dead job, also to do nothing, with the facts; a row whenever that changed."""

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
