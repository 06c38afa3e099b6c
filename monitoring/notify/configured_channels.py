"""The channels that the environment names (WAYMARK_ALERT_MAIL, WAYMARK_ALERT_WEBHOOK): alerts without a click."""

from __future__ import annotations

from collections.abc import Sequence

from monitoring.models import Channel, ChannelKind

MAIL = "Mail"
WEBHOOK = "Webhook"


def ensure_configured_channels(mail: Sequence[str], webhook_url: str, webhook_secret: str) -> None:
    """Make or update the channels `Mail` and `Webhook`; what the environment does not name stays as it is."""
    if mail:
        _ensure(MAIL, ChannelKind.MAIL, {"to": list(mail)}, "")
    if webhook_url:
        _ensure(WEBHOOK, ChannelKind.WEBHOOK, {"url": webhook_url}, webhook_secret)


def is_configured(channel: Channel, mail: Sequence[str], webhook_url: str) -> bool:
    """Return whether the environment names it, so that it is made again at the next start."""
    return (channel.name == MAIL and bool(mail)) or (channel.name == WEBHOOK and bool(webhook_url))


def _ensure(name: str, kind: ChannelKind, settings: dict[str, object], secret: str) -> None:
    # The environment is an administrator's word: its address may be a private one.
    values = {"kind": kind, "settings": settings, "secret": secret, "allow_private": True}
    Channel.objects.update_or_create(name=name, defaults=values)
