"""The audit log: who changed what, and why."""

from __future__ import annotations

from django.db import models

from monitoring.reasons.columns import ReasonField


class AuditEntry(models.Model):
    """One action. `actor` is a user's name, or `waymark` for the automation. `details` never contains a secret."""

    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)
    action = models.CharField(max_length=100)
    target = models.CharField(max_length=600)
    reason = models.TextField(blank=True, default="")
    reason_value = ReasonField(null=True)
    details = models.JSONField(default=dict)

    class Meta:
        ordering = ("-at", "-id")
        indexes = (models.Index(fields=("target", "-at")),)

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"
