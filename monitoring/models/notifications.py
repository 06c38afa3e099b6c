"""Where notifications go, and the outbox that they leave through."""

from __future__ import annotations

from django.db import models

from monitoring.models.incidents import IncidentEvent
from monitoring.models.secret_field import SecretField


class ChannelKind(models.TextChoices):
    MAIL = "mail", "Mail"
    WEBHOOK = "webhook", "Webhook"


class Channel(models.Model):
    """Where notifications go. `settings`: mail {"to": [...]}, webhook {"url": ...}; `secret` signs a webhook's body."""

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=10, choices=ChannelKind.choices)
    settings = models.JSONField(default=dict)
    secret = SecretField()
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


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
