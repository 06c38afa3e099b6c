"""Times of schedules in the language of the page."""

from __future__ import annotations

from dashboard.phrases import told
from dashboard.units import is_chinese
from monitoring.savepoints.timetable import Cron, Timetable


def schedule_text(timetable: Timetable | None) -> str:
    """`every 1 h`, `at 03:00 every day (Europe/Berlin)`; cron's own words are English only."""
    if is_chinese() and isinstance(timetable, Cron):
        return f"{timetable.expression}（{timetable.zone}）"
    return told(str(timetable or "no schedule"))
