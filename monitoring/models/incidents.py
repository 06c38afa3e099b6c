"""What the rules found, and what happened to each finding."""

from __future__ import annotations

from django.db import models

from monitoring.models.jobs import Job
from monitoring.models.rules import AlertRule, Severity


class IncidentState(models.TextChoices):
    OPEN = "open", "Open"
    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    RESOLVED = "resolved", "Resolved"


class IncidentKind(models.TextChoices):
    FAILED_IN_WINDOW = "failed_in_window", "failed checkpoints within a window"
    NOT_RESTARTED = "not_restarted", "a dead job that is not restarted"


class Incident(models.Model):
    """A finding for a job; at most one is unresolved per rule, or per kind where no rule is behind it (`rule` is None:
    the automation itself needs a person, or the rule was removed). `sentence` is what people read everywhere."""

    rule = models.ForeignKey(AlertRule, on_delete=models.SET_NULL, null=True, related_name="incidents")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="incidents")
    kind = models.CharField(max_length=30, choices=IncidentKind.choices, default=IncidentKind.FAILED_IN_WINDOW)
    state = models.CharField(max_length=12, choices=IncidentState.choices, default=IncidentState.OPEN)
    severity = models.CharField(max_length=10, choices=Severity.choices)
    sentence = models.TextField()
    opened_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True, default="")
    resolved_at = models.DateTimeField(null=True)
    resolved_by = models.CharField(max_length=150, blank=True, default="")  # empty: by recovery

    class Meta:
        ordering = ("-opened_at",)
        indexes = (models.Index(fields=("job", "-opened_at")),)
        constraints = (
            models.UniqueConstraint(
                fields=("rule", "job"),
                condition=~models.Q(state="resolved"),
                name="one_unresolved_incident_per_rule_and_job",
            ),
            models.UniqueConstraint(
                fields=("job", "kind"),
                condition=models.Q(kind="not_restarted") & ~models.Q(state="resolved"),
                name="one_unresolved_restart_incident_per_job",
            ),
        )

    def __str__(self) -> str:
        return self.sentence


class IncidentEventKind(models.TextChoices):
    OPENED = "opened", "Opened"
    CHANGED = "changed", "Changed"
    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    RESOLVED = "resolved", "Resolved"


class IncidentEvent(models.Model):
    """One step of an incident, with the numbers and rows it was decided on."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=IncidentEventKind.choices)
    text = models.TextField()
    evidence = models.JSONField(default=dict)

    class Meta:
        ordering = ("at", "id")

    def __str__(self) -> str:
        return self.text
