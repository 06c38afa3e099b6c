"""The dead man's switch: Waymark pings an external service every minute, which raises an alarm when pings stop."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from monitoring.outbound import Policy
from monitoring.outbound_http import AddressDenied, NotReached, send
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from monitoring.selfwatch.own_facts import gather
from monitoring.selfwatch.verdict import judge


class NotPinged(Exception):
    """The ping failed. The text gives the reason without the URL, because the URL can suppress the alarm."""


def ping(now: datetime) -> CycleReport | None:
    """Ping the external service, if WAYMARK_DEAD_MAN_URL is set and Waymark is healthy.

    Raises:
        NotPinged: the service did not answer with success.
    """
    if not settings.DEAD_MAN_URL:
        return None
    verdict = judge(gather(now), settings.BLIND_AFTER_S)
    if not verdict.healthy:
        return CycleReport((WorkReason.NOT_PINGED(why=verdict.reason),))
    # An administrator sets the URL, so a private address is allowed.
    policy = Policy("WAYMARK_DEAD_MAN_URL", private=True, exemptions=settings.OUTBOUND_ALLOW)
    try:
        status = send("GET", settings.DEAD_MAN_URL, policy).status
    except (AddressDenied, NotReached, TimeoutError) as error:
        raise NotPinged(f"WAYMARK_DEAD_MAN_URL: {error}") from None
    if not 200 <= status < 300:
        raise NotPinged(f"WAYMARK_DEAD_MAN_URL answered HTTP {status}")
    return None
