"""People's actions on channels and messages: save, test or remove a channel, retry a message that was given up.

This module also creates the channels of the environment (WAYMARK_ALERT_MAIL, WAYMARK_ALERT_WEBHOOK).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from monitoring import audit
from monitoring.alerts.kinds import kind_of
from monitoring.models import AlertRule, Channel, ChannelKind, Delivery, DeliveryState
from monitoring.notify.addresses import without_path
from monitoring.notify.delivery import CLAIM, Claimed, mark, send
from monitoring.notify.message import Failed, Sent, sample_message
from monitoring.reasons.notify import NotifyReason
from monitoring.reasons.reason import Reason

MAIL = "Mail"
WEBHOOK = "Webhook"
# The fields that the audit log records unchanged. Of secrets it records only whether they are set.
FIELDS = (
    *("name", "kind", "settings", "enabled", "allow_private", "language", "subject_template", "body_template"),
    *("group_wait_s", "messages_per_10_min", "repeat_every_s", "escalate_after_s", "escalate_to"),
    *("summary_cron", "summary_time_zone", "summary_hours"),
)

_NOT_RETRYABLE = {
    DeliveryState.PENDING: NotifyReason.STILL_WAITING,
    DeliveryState.SENT: NotifyReason.SENT_ALREADY,
    DeliveryState.DEAD: NotifyReason.TEST_GIVEN_UP,
}


class NotGivenUp(Exception):
    """The message is not in the state "given up", or no longer."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def snapshot(channel: Channel) -> dict[str, Any]:
    """Return the channel's fields for the audit log, without secrets."""
    values = {name: getattr(channel, name) for name in FIELDS} | {"settings": _audited_settings(channel)}
    values["escalate_to"] = str(channel.escalate_to) if channel.escalate_to else None
    return values | {"secret": "set" if channel.secret else "none"}


def _audited_settings(channel: Channel) -> dict[str, Any]:
    """Return the settings with only the host of a webhook's URL, and a hash that shows changes.

    The path of a webhook's URL is often its password.
    """
    url = channel.settings.get("url")
    if not isinstance(url, str):
        return dict(channel.settings)
    print_of_it = hashlib.sha256(url.encode()).hexdigest()[:8]
    return {**channel.settings, "url": f"{without_path(url)} ({print_of_it})"}


@transaction.atomic
def save_channel(channel: Channel, before: Mapping[str, Any], secret_changed: bool, by: str) -> None:
    """Store a channel and audit the changes. `before`: the `snapshot` of the stored channel, {} for a new one."""
    is_new = channel.pk is None
    channel.save()
    after = snapshot(channel)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if secret_changed and before:
        changed["secret"] = "changed"  # noqa: S105 (text for the audit log)
    old = {name: before[name] for name in changed if name in before}
    audit.record(by, "channel.add" if is_new else "channel.change", f"channel {channel.name}", before=old, now=changed)


class ChannelInUse(Exception):
    """The channel cannot be removed."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


def rules_that_name_only(channel: Channel) -> list[AlertRule]:
    """Return the rules with only this channel. Without it they would notify all channels."""
    rules = AlertRule.objects.filter(channels=channel).select_related("job").prefetch_related("channels")
    return [rule for rule in rules if list(rule.channels.all()) == [channel]]


@transaction.atomic
def remove_channel(channel: Channel, by: str, now: datetime) -> None:
    """Remove a channel with its settings and its secret. Pending messages are given up; old ones stay.

    Raises ChannelInUse.
    """
    locked = Channel.objects.select_for_update().get(pk=channel.pk)
    if stuck := rules_that_name_only(locked):
        raise ChannelInUse(NotifyReason.ONLY_CHANNEL(names=[name_of(rule) for rule in stuck]))
    audit.record(by, "channel.remove", f"channel {locked.name}", before=snapshot(locked))
    locked.rules.clear()
    Channel.objects.filter(escalate_to=locked).update(escalate_to=None, escalate_after_s=None)
    Channel.objects.filter(pk=locked.pk).update(
        enabled=False, removed_at=now, settings={}, secret="", escalate_to=None, escalate_after_s=None, summary_cron=""
    )


def name_of(rule: AlertRule) -> str:
    return f"{kind_of(rule.kind).title} ({rule.job.name})" if rule.job else rule.name


def try_channel(channel: Channel, by: str, now: datetime) -> Sent | Failed:
    """Send a test message at once and return the receiver's answer. The message is stored like any other."""
    delivery = Delivery.objects.create(
        channel=channel,
        key=uuid.uuid4().hex,
        subject=f"[test] by {by}",
        is_test=True,
        created_at=now,
        next_try_at=now,
        claimed_until=now + CLAIM,
    )
    claimed = Claimed(delivery, channel, sample_message(delivery.key, channel, now), now + CLAIM)
    answer = send(claimed, now)
    mark(claimed, answer, now, lambda: 0.5)
    audit.record(by, "channel.test", f"channel {channel.name}", answer.answer)
    return answer


@transaction.atomic
def retry_delivery(delivery: Delivery, by: str, now: datetime) -> None:
    """Retry a message that was given up. It keeps its key, because the receiver may have received it.

    Raises:
        NotGivenUp: the message has another state, or its channel is removed.
    """
    if delivery.channel.removed_at is not None:
        raise NotGivenUp(NotifyReason.CHANNEL_REMOVED(channel=delivery.channel.name))
    again = Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.DEAD, is_test=False)
    if not again.update(state=DeliveryState.PENDING, attempts=0, next_try_at=now, claimed_until=None):
        delivery.refresh_from_db(fields=["state"])
        raise NotGivenUp(_NOT_RETRYABLE[DeliveryState(delivery.state)]())
    audit.record(by, "delivery.retry", f"message {delivery.pk} to {delivery.channel.name}", delivery.subject[:300])


def ensure_configured_channels(mail: Sequence[str], webhook_url: str, webhook_secret: str) -> None:
    """Create or update the channels `Mail` and `Webhook`, each only if the environment sets it."""
    if mail:
        _ensure(MAIL, ChannelKind.MAIL, {"to": list(mail)}, "")
    if webhook_url:
        _ensure(WEBHOOK, ChannelKind.WEBHOOK, {"url": webhook_url}, webhook_secret)


def is_configured(channel: Channel, mail: Sequence[str], webhook_url: str) -> bool:
    """Return whether the environment sets the channel, so that the next start creates it again."""
    return (channel.name == MAIL and bool(mail)) or (channel.name == WEBHOOK and bool(webhook_url))


def _ensure(name: str, kind: ChannelKind, settings: dict[str, object], secret: str) -> None:
    # An administrator sets the environment, so a private address is allowed.
    values = {"kind": kind, "settings": settings, "secret": secret, "allow_private": True}
    Channel.objects.update_or_create(name=name, defaults=values)
