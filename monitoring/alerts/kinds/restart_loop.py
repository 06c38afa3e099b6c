"""Restarts within a window: the engine's own, and new runs."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit, plural
from monitoring.alerts.kinds.counting import CountInWindow, window
from monitoring.alerts.rule_facts import Facts
from monitoring.durations import in_words


class RestartLoop(CountInWindow):
    name = "restart_loop"
    title = _("Restart loop")
    group = _("Job")
    source = Source.RESTARTS
    threshold = Number(_("Threshold"), Unit.COUNT, 5, 2, 10_000, _("Restarts that open an incident."))
    window = window(1800)

    def explain(self, terms: Terms) -> str:
        return (
            f"Opens when a job restarted {plural(terms.threshold or 0, 'time')} within {in_words(terms.window)}, "
            "by itself or as a new run."
        )

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        counted = self.counted(facts, terms, at)
        last = counted[-1].text if counted else ""
        sentence = (
            f"{subject} restarted {plural(len(counted), 'time')} within {in_words(terms.window)} "
            f"(threshold {terms.threshold}){f': last, {last}' if last else ''}"
        )
        restarts = [event.at.isoformat() for event in reversed(counted[-20:])]
        return Finding(
            f"{sentence.rstrip('.')}.",
            {"count": len(counted), "threshold": terms.threshold, "window_s": terms.window_s, "restarts": restarts},
        )


KIND = RestartLoop()
