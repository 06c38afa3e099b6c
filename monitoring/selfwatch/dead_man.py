"""The dead man's switch: somebody outside is told every minute that we see, and raises the alarm when we stop."""

from __future__ import annotations

from datetime import datetime

import httpx2
from django.conf import settings

from monitoring.outbound import Policy, Resolve, resolve
from monitoring.outbound_http import CheckedTransport
from monitoring.selfwatch.facts import gather
from monitoring.selfwatch.verdict import judge

_TIMEOUT = httpx2.Timeout(10.0, connect=5.0)


class NotPinged(Exception):
    """The ping did not arrive; the text says why, without the URL: whoever has that can keep the alarm quiet."""


def ping(now: datetime, lookup: Resolve = resolve) -> str:
    """Tell the outside that we see. Says nothing outside while we do not, nor when nobody listens there.

    Raises NotPinged.
    """
    if not settings.DEAD_MAN_URL:
        return ""
    verdict = judge(gather(now), settings.BLIND_AFTER_S)
    if not verdict.healthy:
        return f"The dead man's switch is not pinged. {verdict.sentence}"
    # The administrator's own word, so it may lie in a private network.
    policy = Policy("WAYMARK_DEAD_MAN_URL", private=True, exemptions=settings.OUTBOUND_ALLOW)
    try:
        with (
            CheckedTransport(policy, lookup) as transport,
            httpx2.Client(transport=transport, timeout=_TIMEOUT, follow_redirects=False, trust_env=False) as client,
            client.stream("GET", settings.DEAD_MAN_URL, headers={"User-Agent": "waymark"}) as response,
        ):
            status = response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise NotPinged(f"WAYMARK_DEAD_MAN_URL: {error or type(error).__name__}") from None
    if not 200 <= status < 300:
        raise NotPinged(f"WAYMARK_DEAD_MAN_URL answered HTTP {status}")
    return ""
