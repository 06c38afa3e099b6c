"""Where a channel may lead: to public addresses; to private ones if an administrator said so, for it or for all."""

from __future__ import annotations

from dataclasses import replace

from monitoring.models import Channel
from monitoring.notify.message import BadChannel
from monitoring.outbound import Denied, Policy, Why, check, parse, resolve
from monitoring.outbound_http import webhook_policy


def policy_of(channel: Channel) -> Policy:
    return replace(webhook_policy(), private=channel.allow_private)


def without_path(url: str) -> str:
    """`https://host/…`: what may be shown of an address to everybody."""
    target = parse(url)
    return "…" if isinstance(target, Denied) else f"{target.scheme}://{target.host}/…"


def check_address(field: str, url: str, channel: Channel) -> None:
    """Raises BadChannel where the address is none or is not allowed. A name that does not resolve now may do so later:
    that is the sending's to find out, and the test button's to show."""
    judged = check(url, policy_of(channel), resolve)
    if isinstance(judged, Denied) and judged.why is not Why.UNRESOLVED:
        raise BadChannel(field, without_path(url), judged.reason)
