"""Format sizes and durations for people."""

from __future__ import annotations

from monitoring.durations import in_words

_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")


def milliseconds_text(value: float) -> str:
    """Return `850 ms`, `4.5 s`, `2 min 10 s`; whole seconds without a fraction."""
    if value < 1000:
        return f"{value:.0f} ms"
    return f"{value / 1000:.1f} s" if value < 60_000 and value % 1000 else in_words(value / 1000)


def bytes_text(value: float) -> str:
    """Return a size in units of 1024, with three digits: `0 B`, `81.3 KB`, `2.41 GB`."""
    size, units = float(value), iter(_SIZES)
    unit = next(units)
    while abs(size) >= 1024 and unit != _SIZES[-1]:
        size, unit = size / 1024, next(units)
    return f"{size:.3g} {unit}" if abs(size) < 1000 else f"{size:.0f} {unit}"
