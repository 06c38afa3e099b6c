"""Channels, and the outbox of notifications.

A Notification says that a channel must be notified of an incident's step. It is stored in the same transaction as the
step. A Delivery is a message with one or more notifications, which is tried until it is sent or given up.
"""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_noop as _

from monitoring.models.incidents import IncidentEvent
from monitoring.models.maintenance import MaintenanceWindow
from monitoring.models.secret_field import SecretField
from monitoring.reasons.columns import ReasonField
from monitoring.reasons.reason import SOURCE


class ChannelKind(models.TextChoices):
    MAIL = "mail", _("Mail")
    WEBHOOK = "webhook", _("Webhook")
    APPRISE = "apprise", _("Chat, paging, push")


def languages() -> list[tuple[str, str]]:
    """Return the languages of the settings. The field names this function, so a new language needs no migration."""
    return settings.LANGUAGES


class _LivingChannels(models.Manager["Channel"]):
    def get_queryset(self) -> models.QuerySet[Channel]:
        return super().get_queryset().filter(removed_at=None)


class Channel(models.Model):
    """A destination of notifications. `objects` contains only channels that were not removed.

    A removed channel is disabled and has neither settings nor secret. Its row stays for the history of its messages.

    `settings`: mail {"to": [...]}, webhook {"url": ...}, Apprise {}. `secret`: for mail the URL of the channel's own
    SMTP server, for a webhook the key that signs the body, for Apprise its URL.
    """

    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=10, choices=ChannelKind.choices)
    settings = models.JSONField(default=dict)
    secret = SecretField()
    enabled = models.BooleanField(default=True)
    # An administrator allowed a private address for this channel.
    allow_private = models.BooleanField(default=False)
    language = models.CharField(max_length=10, choices=languages, default=SOURCE)
    # Empty: Waymark's default texts.
    subject_template = models.TextField(blank=True, default="")
    body_template = models.TextField(blank=True, default="")
    # Incidents that open or end within this time are combined into one message.
    group_wait_s = models.PositiveIntegerField(default=10, validators=[MaxValueValidator(600)])
    # Beyond this limit, notifications wait and are sent as one digest.
    messages_per_10_min = models.PositiveIntegerField(
        default=10, validators=[MinValueValidator(1), MaxValueValidator(1000)]
    )
    # While nobody acknowledges the incident: notify this channel again, and after a time another channel.
    repeat_every_s = models.PositiveIntegerField(null=True, blank=True)
    escalate_after_s = models.PositiveIntegerField(null=True, blank=True)
    escalate_to = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    # The times of shift summaries (cron; empty: none), and the hours before each time that a summary covers. The worker
    # sets the next time if it is None.
    summary_cron = models.CharField(max_length=100, blank=True, default="")
    summary_time_zone = models.CharField(max_length=64, default="UTC")
    summary_hours = models.PositiveSmallIntegerField(default=12)
    next_summary_at = models.DateTimeField(null=True, editable=False)
    removed_at = models.DateTimeField(null=True, editable=False)

    objects = _LivingChannels()
    with_removed = models.Manager["Channel"]()

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("name",), condition=models.Q(removed_at=None), name="one_channel_per_name"),
        )

    def __str__(self) -> str:
        return self.name


class DeliveryState(models.TextChoices):
    PENDING = "pending", _("Waiting")
    SENT = "sent", _("Sent")
    DEAD = "dead", _("Given up")


class Delivery(models.Model):
    """A message to one channel, sent at least once. `key` is the same at every try, so the receiver sees duplicates.

    `summary` is the content of a shift summary (notify/shift.py); None: the message is about its notifications.
    """

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    key = models.CharField(max_length=64, unique=True)
    state = models.CharField(max_length=10, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    subject = models.TextField(blank=True, default="")
    is_digest = models.BooleanField(default=False)
    is_test = models.BooleanField(default=False)
    summary = models.JSONField(null=True)
    created_at = models.DateTimeField()
    # Attempts since the creation, or since a person requested another one.
    attempts = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(db_index=True)
    claimed_until = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("channel", "-created_at"), name="deliveries_of_a_channel"),)

    def __str__(self) -> str:
        return f"{self.channel}: {self.subject or self.key}"


class AttemptOutcome(models.TextChoices):
    SENT = "sent", _("Sent")
    AGAIN = "again", _("Will be retried")
    GIVEN_UP = "given_up", _("Given up")


class DeliveryAttempt(models.Model):
    """One try of a message, and the receiver's answer."""

    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="tries")
    at = models.DateTimeField()
    outcome = models.CharField(max_length=10, choices=AttemptOutcome.choices)
    answer = models.TextField()
    answer_value = ReasonField(null=True)  # None: `answer` is the text of the receiver

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.answer


class NotificationReason(models.TextChoices):
    OPENED = "opened", _("Opened")
    RESOLVED = "resolved", _("Resolved")
    REPEAT = "repeat", _("Still open")
    ESCALATION = "escalation", _("Escalated")
    WOKEN = "woken", _("Snooze ended")


class NotificationState(models.TextChoices):
    WAITING = "waiting", _("Waiting")  # waits until due_at
    HELD = "held", _("Hidden")  # held until the incident that hides this one is resolved
    GATHERED = "gathered", _("In a message")
    DROPPED = "dropped", _("Not sent")


class Notification(models.Model):
    """A request to notify `channel` of a step. `why` says what it waits for, or why it was not sent."""

    event = models.ForeignKey(IncidentEvent, on_delete=models.CASCADE, related_name="notifications")
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="notifications")
    reason = models.CharField(max_length=10, choices=NotificationReason.choices)
    state = models.CharField(max_length=10, choices=NotificationState.choices, default=NotificationState.WAITING)
    due_at = models.DateTimeField()
    why = models.TextField(blank=True, default="")
    why_value = ReasonField(null=True, blank=True)
    text = models.TextField(blank=True, default="")  # the text in the message, set when the notification is added to it
    text_value = ReasonField(null=True, blank=True)
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, null=True, related_name="notifications")
    silenced_by = models.ForeignKey(MaintenanceWindow, on_delete=models.SET_NULL, null=True, related_name="silenced")

    class Meta:
        ordering = ("id",)
        indexes = (
            models.Index(fields=("due_at",), condition=models.Q(state="waiting"), name="notifications_that_wait"),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("event", "channel", "reason"),
                condition=~models.Q(reason="repeat"),
                name="a_channel_is_told_of_a_step_once",
            ),
        )

    def __str__(self) -> str:
        return f"{self.channel}: {self.get_reason_display()}"
