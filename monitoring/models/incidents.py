"""Incidents, and the steps of each."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.clusters import Cluster
from monitoring.models.jobs import Job
from monitoring.models.rules import AlertRule, Severity
from monitoring.reasons.columns import ReasonField


class IncidentState(models.TextChoices):
    OPEN = "open", _("Open")
    ACKNOWLEDGED = "acknowledged", _("Acknowledged")
    SNOOZED = "snoozed", _("Snoozed")
    RESOLVED = "resolved", _("Resolved")


class IncidentKind(models.TextChoices):
    FAILED_IN_WINDOW = "failed_in_window", _("failed checkpoints within a window")
    NOT_RESTARTED = "not_restarted", _("a dead job that is not restarted")
    CLUSTER_UNREACHABLE = "cluster_unreachable", _("a cluster that does not answer")
    ANOTHER_CLUSTER = "another_cluster", _("another cluster at a cluster's address")


# While a cluster has an unresolved incident of these kinds, incidents of its jobs notify nobody.
INHIBITING_KINDS = frozenset({IncidentKind.CLUSTER_UNREACHABLE, IncidentKind.ANOTHER_CLUSTER})


class Incident(models.Model):
    """A problem of a job, of a cluster (`job` is None), or of Waymark itself (`cluster` is None, too).

    At most one is unresolved per rule and subject, or per kind if it has no rule (the automation needs a person, or the
    rule was deleted). `sentence` is its text on pages and in messages. `inhibited_by` is the incident that hides this
    one from people until it is resolved; the value stays afterwards.
    """

    rule = models.ForeignKey(AlertRule, on_delete=models.SET_NULL, null=True, related_name="incidents")
    job = models.ForeignKey(Job, on_delete=models.CASCADE, null=True, related_name="incidents")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, null=True, related_name="incidents")
    kind = models.CharField(max_length=30, default=IncidentKind.FAILED_IN_WINDOW)  # a rule's kind, or an IncidentKind
    state = models.CharField(max_length=12, choices=IncidentState.choices, default=IncidentState.OPEN)
    severity = models.CharField(max_length=10, choices=Severity.choices)
    sentence = models.TextField()
    sentence_value = ReasonField(null=True)
    opened_at = models.DateTimeField()
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True, default="")
    snoozed_until = models.DateTimeField(null=True, db_index=True)
    inhibited_by = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="inhibited")
    resolved_at = models.DateTimeField(null=True)
    resolved_by = models.CharField(max_length=150, blank=True, default="")  # empty: the problem ended by itself

    class Meta:
        ordering = ("-opened_at",)
        indexes = (
            models.Index(fields=("job", "-opened_at")),
            models.Index(fields=("cluster",), condition=~models.Q(state="resolved"), name="unresolved_by_cluster"),
        )
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
            models.UniqueConstraint(
                fields=("kind", "rule", "cluster"),
                condition=models.Q(job=None) & ~models.Q(state="resolved"),
                nulls_distinct=False,
                name="one_unresolved_incident_per_rule_and_cluster",
            ),
        )

    def __str__(self) -> str:
        return self.sentence

    @property
    def subject(self) -> str:
        """Return the name of the job or cluster, or "Waymark"."""
        return self.job.name if self.job else self.cluster.name if self.cluster else "Waymark"


class IncidentEventKind(models.TextChoices):
    OPENED = "opened", _("Opened")
    CHANGED = "changed", _("Changed")
    ACKNOWLEDGED = "acknowledged", _("Acknowledged")
    SNOOZED = "snoozed", _("Snoozed")
    WOKEN = "woken", _("Snooze ended")
    INHIBITED = "inhibited", _("Hidden")
    RELEASED = "released", _("No longer hidden")
    NOTE = "note", _("Note")
    RESOLVED = "resolved", _("Resolved")
    REOPENED = "reopened", _("Reopened")


class IncidentEvent(models.Model):
    """One step of an incident, with the numbers and rows behind it.

    Consecutive changes are one row: `at`, text and evidence are those of the newest change, `times` is their number,
    and `first_at` is the time of the first.
    """

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=IncidentEventKind.choices)
    text = models.TextField()
    text_value = ReasonField(null=True)
    evidence = models.JSONField(default=dict)
    times = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("at", "id")

    def __str__(self) -> str:
        return self.text
