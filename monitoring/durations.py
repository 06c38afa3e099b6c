"""Lengths of time as people say them."""

from __future__ import annotations

from datetime import timedelta

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_CHINESE = {"d": "天", "h": "小时", "min": "分钟", "s": "秒"}


def in_words(length: timedelta | float) -> str:
    """The two largest units: `15 min`, `1 h 30 min`, `45 s`; less than a second is `0 s`."""
    seconds = round(length.total_seconds() if isinstance(length, timedelta) else length)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def in_chinese(text: str) -> str:
    """Translate the units of a length of time: `1 h 30 min` is `1 小时 30 分钟`. Units below a second stay."""
    return " ".join(_CHINESE.get(word, word) for word in text.split())
