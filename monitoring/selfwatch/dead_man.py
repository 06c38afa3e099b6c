"""The dead man's switch: somebody outside is told every minute that we see, and raises the alarm when we stop."""

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
    """The ping did not arrive; the text says why, without the URL: whoever has that can keep the alarm quiet."""


def ping(now: datetime) -> CycleReport | None:
    """Tell the outside that we see. Says nothing outside while we do not, nor when nobody listens there.

    Raises NotPinged.
    """
    if not settings.DEAD_MAN_URL:
        return None
    verdict = judge(gather(now), settings.BLIND_AFTER_S)
    if not verdict.healthy:
        return CycleReport((WorkReason.NOT_PINGED(why=verdict.reason),))
    # The administrator's own word, so it may lie in a private network.
    policy = Policy("WAYMARK_DEAD_MAN_URL", private=True, exemptions=settings.OUTBOUND_ALLOW)
    try:
        status = send("GET", settings.DEAD_MAN_URL, policy).status
    except (AddressDenied, NotReached, TimeoutError) as error:
        raise NotPinged(f"WAYMARK_DEAD_MAN_URL: {error}") from None
    if not 200 <= status < 300:
        raise NotPinged(f"WAYMARK_DEAD_MAN_URL answered HTTP {status}")
    return None
