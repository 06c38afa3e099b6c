"""The rules that look for trouble, as a person sets them."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from monitoring.models.jobs import Job


class RuleKind(models.TextChoices):
    FAILED_IN_WINDOW = "failed_in_window", "failed checkpoints within a window"


class Severity(models.TextChoices):
    WARNING = "warning", "Warning"
    CRITICAL = "critical", "Critical"


class AlertRule(models.Model):
    """`threshold` failed checkpoints (distinct ids) within `window_s` seconds open an incident."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="rules")
    kind = models.CharField(max_length=30, choices=RuleKind.choices, default=RuleKind.FAILED_IN_WINDOW)
    window_s = models.PositiveIntegerField(
        default=900, validators=[MinValueValidator(60), MaxValueValidator(30 * 86_400)]
    )
    threshold = models.PositiveIntegerField(default=3, validators=[MinValueValidator(1), MaxValueValidator(100_000)])
    check_every_s = models.PositiveIntegerField(
        default=300, validators=[MinValueValidator(5), MaxValueValidator(86_400)]
    )
    severity = models.CharField(max_length=10, choices=Severity.choices, default=Severity.WARNING)
    enabled = models.BooleanField(default=True)
    channels = models.ManyToManyField("monitoring.Channel", related_name="rules", blank=True)
    # Set when a person resolves the rule's incident: failures up to then are dealt with and not counted again.
    counts_since = models.DateTimeField(null=True, blank=True)
    next_check_at = models.DateTimeField(null=True, blank=True, db_index=True)
    last_checked_at = models.DateTimeField(null=True, blank=True)
    last_value = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ("job_id", "kind")
        constraints = (models.UniqueConstraint(fields=("job", "kind"), name="one_rule_per_job_and_kind"),)

    def __str__(self) -> str:
        return f"{self.job}: {self.get_kind_display()}"
