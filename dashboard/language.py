"""Schedules in the language of the page."""

from __future__ import annotations

from dashboard.phrases import told
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints.timetable import Timetable


def schedule_text(timetable: Timetable | None) -> str:
    """`every 1 h`, `at 03:00 every day (Europe/Berlin)`."""
    return told(timetable.reason if timetable else SavepointReason.NO_SCHEDULE())
