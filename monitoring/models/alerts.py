"""Rules, incidents and the notifications that leave because of them (the outbox)."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from monitoring.models.jobs import Job


class RuleKind(models.TextChoices):
    FAILED_IN_WINDOW = "failed_in_window", "failed checkpoints within a window"


class Severity(models.TextChoices):
    WARNING = "warning", "Warning"
    CRITICAL = "critical", "Critical"


class ChannelKind(models.TextChoices):
    MAIL = "mail", "Mail"
    WEBHOOK = "webhook", "Webhook"


class Channel(models.Model):
    """Where notifications go. `settings`: mail {"to": [...]}, webhook {"url": ...}; `secret` signs a webhook's body."""

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=10, choices=ChannelKind.choices)
    settings = models.JSONField(default=dict)
    secret = models.CharField(max_length=200, blank=True, default="")
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


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
    channels = models.ManyToManyField(Channel, related_name="rules", blank=True)
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


class DeliveryState(models.TextChoices):
    PENDING = "pending", "Waiting"
    SENT = "sent", "Sent"
    DEAD = "dead", "Given up"


class Delivery(models.Model):
    """The outbox: written in the transaction that changed the incident, sent at least once, keyed for the receiver."""

    event = models.ForeignKey(IncidentEvent, on_delete=models.CASCADE, related_name="deliveries")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    key = models.CharField(max_length=64, unique=True)
    state = models.CharField(max_length=10, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(db_index=True)
    claimed_until = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)
    log = models.JSONField(default=list)  # [{"at", "answer"}], newest last

    class Meta:
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("event", "channel"), name="an_event_goes_to_a_channel_once"),)

    def __str__(self) -> str:
        return f"{self.channel}: {self.event}"
