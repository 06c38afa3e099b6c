"""Check a channel's address: private ones need an administrator's permission, for the channel or for all."""

from __future__ import annotations

from dataclasses import replace

from monitoring.models import Channel
from monitoring.notify.message import BadChannel
from monitoring.outbound import Denied, Policy, Why, check, parse, resolve
from monitoring.outbound_http import webhook_policy


def policy_of(channel: Channel) -> Policy:
    return replace(webhook_policy(), private=channel.allow_private)


def without_path(url: str) -> str:
    """Return `https://host/…`, the part of an address that everybody may see."""
    target = parse(url)
    return "…" if isinstance(target, Denied) else f"{target.scheme}://{target.host}/…"


def check_address(field: str, url: str, channel: Channel) -> None:
    """Check a channel's URL. A name that does not resolve now is accepted, because it may resolve later.

    Raises:
        BadChannel: the text is not an address, or the address is not allowed.
    """
    judged = check(url, policy_of(channel), resolve)
    if isinstance(judged, Denied) and judged.why is not Why.UNRESOLVED:
        raise BadChannel(field, without_path(url), judged.reason)
