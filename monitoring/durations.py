"""Format lengths of time for people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from monitoring.marking import marked as _

_UNITS = (
    (86_400, _("d")),
    (3600, _("h")),
    (60, _("min")),
    (1, _("s")),
)
_NAMES = {name for _, name in _UNITS}


def in_words(length: timedelta | float) -> str:
    """Return the length in its two largest units: `15 min`, `1 h 30 min`, `45 s`; less than a second is `0 s`."""
    seconds = round(length.total_seconds() if isinstance(length, timedelta) else length)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def with_units(text: str, translated: Callable[[str], str]) -> str:
    """Translate the units in a length of time such as `1 h 30 min`; units below a second stay as they are."""
    return " ".join(translated(word) if word in _NAMES else word for word in text.split())
