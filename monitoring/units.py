"""Format lengths of time, sizes and times for people.

The catalogue of a language translates the units, the names of months and the order of a date. `translated` is the
function that looks a text up: by default in the catalogue of the active language.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from math import log2

from django.utils.translation import gettext

from monitoring.marking import marked as _

Translated = Callable[[str], str]

ENGLISH: Translated = str  # for the fields of forms, which accept only the English units
NOTHING = "–"
MINUTE = _("%Y-%m-%d %H:%M %Z")
SECOND = _("%Y-%m-%d %H:%M:%S %Z")
CLOCK_MINUTE = _("%H:%M %Z")
CLOCK_SECOND = _("%H:%M:%S %Z")
DAY = _("%Y-%m-%d")
DATE = _("%-d %B %Y")
SHORT_DATE_AND_CLOCK = _("%b %-d, %H:%M:%S")

_D, _H, _MIN, _S, _MS = _("d"), _("h"), _("min"), _("s"), _("ms")
_LENGTHS = ((86_400, _D), (3600, _H), (60, _MIN), (1, _S))
_SIZES = (_("B"), _("KB"), _("MB"), _("GB"), _("TB"), _("PB"), _("EB"))


def duration_text(milliseconds: float | None, translated: Translated = gettext) -> str:
    """Format a duration with three digits, from a minute in its two largest units: `12 ms`, `1.35 s`, `2 min 10 s`.

    Return a dash if it is unknown or negative.
    """
    if milliseconds is None or milliseconds < 0:
        return NOTHING
    whole = round(milliseconds)
    if whole < 1000:
        return f"{whole} {translated(_MS)}"
    if whole < 59_950:
        return f"{whole / 1000:.3g} {translated(_S)}"
    return length_text(whole / 1000, translated)


def length_text(length: timedelta | float, translated: Translated = gettext) -> str:
    """Return a length in its two largest units: `15 min`, `1 h 30 min`, `45 s`; less than a second is `0 s`."""
    seconds = round(length.total_seconds() if isinstance(length, timedelta) else length)
    parts: list[str] = []
    for size, unit in _LENGTHS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {translated(unit)}")
        elif parts:
            break
    return " ".join(parts[:2]) or f"0 {translated(_S)}"


def span_text(seconds: float, translated: Translated = gettext) -> str:
    """Return a configured length exactly, in one unit: `90 s`, `15 min`, `2 h`, `7 d`."""
    whole = int(seconds)
    if whole != seconds:
        return f"{seconds:g} {translated(_S)}"
    size, unit = next((each for each in _LENGTHS if whole and whole % each[0] == 0), _LENGTHS[-1])
    return f"{whole // size} {translated(unit)}"


def span_ms_text(milliseconds: float, translated: Translated = gettext) -> str:
    """Return a round number of milliseconds exactly, in one unit: `500 ms`, `90 s`, `15 min`."""
    if milliseconds < 1000:
        return f"{milliseconds} {translated(_MS)}"
    return span_text(milliseconds / 1000, translated)


def span_ms_texts(milliseconds: Sequence[float], translated: Translated = gettext) -> list[str]:
    """Format the ticks of an axis in one unit: `30 s`, `60 s`, `90 s`. The first is the step, the last the largest."""
    step, largest = milliseconds[0], milliseconds[-1]
    if largest < 1000:
        size, unit = 1, _MS
    else:
        lengths = ((seconds * 1000, unit) for seconds, unit in _LENGTHS)
        size, unit = next(((length, unit) for length, unit in lengths if step % length == 0), (1000, _S))
    return [f"{each / size:g} {translated(unit)}" for each in milliseconds]


def age_text(age: timedelta, translated: Translated = gettext) -> str:
    """Return an age, rounded down, in at most two units: `6 s`, `2 min 10 s`, `38 min`, `5 h 50 min`, `3 d 4 h`.

    The browser has the same rules: dashboard/static/dashboard/js/times.js.
    """
    seconds = max(0, int(age.total_seconds()))
    (minutes, s), (hours, m), (days, h) = divmod(seconds, 60), divmod(seconds // 60, 60), divmod(seconds // 3600, 24)
    if minutes < 1:
        parts = [(f"{s}", _S)]
    elif minutes < 10:
        parts = [(f"{minutes}", _MIN), (f"{s or ''}", _S)]
    elif hours < 1:
        parts = [(f"{minutes}", _MIN)]
    elif hours < 48:
        parts = [(f"{hours}", _H), (f"{m:02}" if m else "", _MIN)]
    else:
        parts = [(f"{days}", _D), (f"{h or ''}", _H)]
    return " ".join(f"{count} {translated(unit)}" for count, unit in parts if count)


def bytes_text(size: float | None, translated: Translated = gettext) -> str:
    """Format a size with base 1024 and three digits, as Flink's web UI does: `0 B`, `81.3 KB`, `2.41 GB`.

    Return a dash if it is unknown or negative.
    """
    if size is None or size < 0:
        return NOTHING
    if size < 1000:
        return f"{round(size)} {translated(_SIZES[0])}"
    value = float(size)
    for unit in _SIZES[1:]:
        value /= 1024
        if value < 999.5 or unit == _SIZES[-1]:
            break
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {translated(unit)}"


def round_bytes_texts(sizes: Sequence[float], translated: Translated = gettext) -> list[str]:
    """Format the ticks of an axis in one unit, that of the last and largest: `0.5 MB`, `1 MB`, `1.5 MB`."""
    power = min(int(log2(sizes[-1])) // 10, len(_SIZES) - 1)
    return [f"{size / 1024**power:g} {translated(_SIZES[power])}" for size in sizes]


def time_text(at: datetime, form: str, translated: Translated = gettext) -> str:
    """Return a time in a `form` of strftime such as `SECOND`, for which a language may have another one."""
    form = translated(form)
    if "%B" in form:
        form = form.replace("%B", translated(f"{at:%B}"))
    if "%b" in form:
        # Django's catalogues name months in lower case, such as "jan".
        form = form.replace("%b", translated(f"{at:%b}".lower()).title())
    return at.strftime(form)
