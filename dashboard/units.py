"""Format durations, sizes and ages for people.

Durations and sizes have the format of Flink's web UI, so that a value looks the same in both.
"""

from __future__ import annotations

import re
from datetime import timedelta

from django.utils.translation import get_language, gettext

from monitoring.durations import with_units

NOTHING = "–"
LENGTH = re.compile(r"\d+(\.\d+)? (d|h|min|s)( \d+ (h|min|s))?")
_SIZES = ("KB", "MB", "GB", "TB", "PB", "EB")


def duration_text(milliseconds: float | None) -> str:
    """Format a duration: `12ms`, `3s 45ms`, `2m 3s 4ms`, `1h 2m 3s`, `2d 3h 4m 5s`; a dash if unknown or negative."""
    if milliseconds is None or milliseconds < 0:
        return NOTHING
    seconds, ms = divmod(round(milliseconds), 1000)
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d {h}h {m}m {s}s"
    if hours:
        return f"{h}h {m}m {s}s"
    if minutes:
        return f"{m}m {s}s {ms}ms"
    return f"{s}s {ms}ms" if seconds else f"{ms}ms"


def bytes_text(size: float | None) -> str:
    """Format a size with base 1024 and three digits: `0 B`, `81.3 KB`, `2.41 GB`; a dash if unknown or negative."""
    if size is None or size < 0:
        return NOTHING
    if size < 1000:
        return f"{round(size)} B"
    value = float(size)
    for unit in _SIZES:
        value /= 1024
        if value < 999.5 or unit == _SIZES[-1]:
            break
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def is_chinese() -> bool:
    return (get_language() or "").startswith("zh")


def length_text(text: str) -> str:
    """Translate the units of a length of time. Return any other text unchanged.

    Do not translate the values of forms, because forms accept only the English units.
    """
    return with_units(text, gettext) if LENGTH.fullmatch(text) else text


def age_text(age: timedelta) -> str:
    """Format an age in at most two units: `6 s`, `2 min 10 s`, `38 min`, `5 h 50 min`, `3 d 4 h`.

    static/dashboard/js/times.js has the same rules for the browser.
    """
    return length_text(_age(age))


def _age(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, s = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes} min {s} s" if s else f"{minutes} min"
    if minutes < 60:
        return f"{minutes} min"
    hours, m = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {m:02} min" if m else f"{hours} h"
    days, h = divmod(hours, 24)
    return f"{days} d {h} h" if h else f"{days} d"


def span_text(seconds: float) -> str:
    """Format a length of time exactly, as forms accept it: `90 s`, `15 min`, `2 h`, `7 d`."""
    whole = int(seconds)
    if whole != seconds:
        return f"{seconds:g} s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if whole and whole % size == 0:
            return f"{whole // size} {unit}"
    return f"{whole} s"
