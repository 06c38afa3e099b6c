"""How long a receiver wants to be left alone (RFC 9110, Retry-After)."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime


def seconds_to_wait(header: str, now: datetime) -> float | None:
    """Of seconds or an HTTP date; None when there is none that can be read."""
    value = header.strip()
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds()) if value else None
    except (ValueError, TypeError):
        return None
