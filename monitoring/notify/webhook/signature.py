"""The webhook's signature: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<unix seconds>.<body>">`.

A receiver recomputes it over the raw body and refuses old timestamps, so that a captured request cannot be replayed.
"""

from __future__ import annotations

import hashlib
import hmac


def sign(secret: str, timestamp: int, body: bytes) -> str:
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def verify(secret: str, header: str, body: bytes) -> bool:
    """Whether `header` signs `body`; the timestamp's age is the receiver's to judge."""
    timestamp = header.partition(",")[0].removeprefix("t=")
    return timestamp.isdecimal() and hmac.compare_digest(sign(secret, int(timestamp), body), header)
