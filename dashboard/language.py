"""Render reasons in the language of the page."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import get_language, gettext

from monitoring.reasons.reason import SOURCE, Reason, render
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.timetable import Timetable


def rendered(reason: Reason | str) -> str:
    """Return the text of a reason in the language of the page. Return a plain text unchanged."""
    return render(reason, get_language() or SOURCE)


def listed(texts: Iterable[str]) -> str:
    """Return the texts with the comma of the language of the page between them."""
    return gettext(", ").join(texts)


def schedule_text(timetable: Timetable | None) -> str:
    """Return a schedule such as `every 1 h` or `at 03:00 every day (Europe/Berlin)`."""
    return rendered(timetable.reason if timetable else SavepointReason.NO_SCHEDULE())
